import { useLocation } from "wouter";
import type { Selection } from "../../api/documents";
import { Button } from "../../parts/Button";
import { useShortcut } from "../../shortcuts/shortcuts";
import { addressOfFilters } from "../letters/filters";
import { useNeighbours } from "./useLetter";

/** To the letters beside this one in the list it was opened from. */
export function Neighbours({ id, filter }: { id: string; filter: Selection }) {
  const [, go] = useLocation();
  const { data } = useNeighbours(id, filter);
  const query = addressOfFilters(filter);
  const open = (other: string | null | undefined) => {
    if (other) go(`/letters/${other}${query}`);
  };
  useShortcut("j", "Next letter (older)", () => open(data?.older));
  useShortcut("k", "Previous letter (newer)", () => open(data?.newer));
  useShortcut("u", "Back to the list", () => go(`/letters${query}`));
  return (
    <>
      <Button icon="previous" iconOnly disabled={!data?.newer} title="Newer letter (k)" onClick={() => open(data?.newer)}>
        Newer letter
      </Button>
      <Button icon="next" iconOnly disabled={!data?.older} title="Older letter (j)" onClick={() => open(data?.older)}>
        Older letter
      </Button>
    </>
  );
}
