import { remove } from "../../api/client";
import type { Policy } from "../../api/documents";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { ErrorNotice } from "../../parts/ErrorNotice";

export function DeletePolicy({ policy, onClose }: { policy: Policy; onClose: () => void }) {
  const deleting = useChange({
    change: (name: string, key) => remove("/api/v1/policies", { query: { name } }, { key }),
    touches: [["policies"]],
    done: ({ name }) => `Policy ${name} deleted`,
    then: onClose,
  });
  return (
    <Dialog
      title={`Delete ${policy.name}`}
      onClose={onClose}
      onSubmit={() => {
        if (!deleting.busy) deleting.make(policy.name);
      }}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="danger" type="submit" icon="discard" busy={deleting.busy}>
            Delete
          </Button>
        </>
      }
    >
      <p>
        All rows of this name go from the database. Messages with such a routing key then follow a policy of the file or a
        wider pattern; without one they go straight to the dead letter queue.
      </p>
      {deleting.problem && <ErrorNotice error={deleting.problem} />}
    </Dialog>
  );
}
