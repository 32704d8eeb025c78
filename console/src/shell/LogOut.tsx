import { remove } from "../api/client";
import { sessionKey } from "../api/session";
import { useChange } from "../api/useChange";
import { Button } from "../parts/Button";

export function LogOut() {
  const leaving = useChange({
    change: (_: null, key) => remove("/api/v1/session", {}, { key }),
    touches: [sessionKey],
    // What was read belongs to who was logged in.
    then: () => window.location.assign("/"),
  });
  return (
    <Button kind="quiet" icon="leave" iconOnly busy={leaving.busy} onClick={() => leaving.make(null)}>
      Log out
    </Button>
  );
}
