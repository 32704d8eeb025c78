import { post } from "../../api/client";
import type { Edit, Letter } from "../../api/documents";
import { useMay } from "../../api/session";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Section } from "../../parts/Page";
import { Badge } from "../../parts/StateBadge";
import { Time } from "../../parts/Time";
import styles from "./Edits.module.css";

/** What people changed; the newest can be taken back until it was sent. */
export function Edits({ letter }: { letter: Letter }) {
  const may = useMay("operator");
  const undoing = useChange({
    change: (_: null, key) =>
      post("/api/v1/letters/{letter_id}/undo", { reason: "" }, { path: { letter_id: letter.id } }, { key }),
    touches: [["letter", letter.id]],
    done: ({ undone }) => `Edit ${undone} taken back`,
  });
  return (
    <Section
      title="Edits"
      actions={
        may &&
        letter.edits.some((edit) => edit.stands) && (
          <Button icon="restore" busy={undoing.busy} onClick={() => undoing.make(null)}>
            Take the newest back
          </Button>
        )
      }
    >
      {undoing.problem && <ErrorNotice error={undoing.problem} />}
      <ul className={styles.edits}>
        {letter.edits.toReversed().map((edit) => (
          <li key={edit.number}>
            <span>{`Edit ${edit.number}`}</span>
            <Badge tone={edit.undone ? "archived" : edit.stands ? "pending" : "archived"}>{wordOf(edit, letter)}</Badge>
            <span className={styles.by}>
              {edit.actor} <Time at={edit.at} />
              {edit.reason && `: ${edit.reason}`}
            </span>
          </li>
        ))}
      </ul>
    </Section>
  );
}

function wordOf(edit: Edit, letter: Letter): string {
  if (edit.undone) return "taken back";
  const left = letter.replayAttempts.some(({ timestamp, result }) => timestamp >= edit.at && result !== "refused");
  if (edit.stands) return left ? "was sent" : "will be sent";
  return "replaced";
}
