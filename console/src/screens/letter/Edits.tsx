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
import { standingEdit } from "./useLetter";

/** What people changed; the newest can be taken back until it was sent. */
export function Edits({ letter }: { letter: Letter }) {
  const may = useMay("operator");
  const undoing = useChange({
    change: (edit: number, key) =>
      post("/api/v1/letters/{letter_id}/undo", { edit, reason: "" }, { path: { letter_id: letter.id } }, { key }),
    touches: [["letter", letter.id]],
    done: ({ undone }) => `Edit ${undone} taken back`,
  });
  const stands = standingEdit(letter);
  return (
    <Section
      title="Edits"
      actions={
        may &&
        stands && (
          <Button icon="restore" busy={undoing.busy} onClick={() => undoing.make(stands.number)}>
            {`Take edit ${stands.number} back`}
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
