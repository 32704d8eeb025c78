import { useState } from "react";
import type { Letter, State } from "../../api/documents";
import { useMay } from "../../api/session";
import { Button } from "../../parts/Button";
import { useShortcut } from "../../shortcuts/shortcuts";
import { DecideDialog, WORDING, type Verb } from "../letters/actions/DecideDialog";
import { ReplayDialog } from "../letters/actions/ReplayDialog";
import { EditDialog } from "./edit/EditDialog";
import styles from "./LetterActions.module.css";
import { Next } from "./Next";

/** What the lifecycle lets a person decide in each state. */
const OFFERED: Record<State, readonly Verb[]> = {
  dlq_pending: ["discard", "archive"],
  dlq_processing: ["resolve"],
  dlq_manual: ["resolve", "discard", "archive"],
  dlq_failed: ["discard", "archive"],
  dlq_resolved: [],
  dlq_archived: ["restore"],
};
const SENDABLE: readonly State[] = ["dlq_pending", "dlq_manual", "dlq_failed", "dlq_resolved"];

type Open = Verb | "replay" | "edit" | null;

export function LetterActions({ letter }: { letter: Letter }) {
  const [open, setOpen] = useState<Open>(null);
  const may = useMay("operator");
  const offered = OFFERED[letter.status];
  const sendable = SENDABLE.includes(letter.status);
  const editable = letter.status !== "dlq_processing";
  useShortcut("r", "Replay the letter", () => setOpen("replay"), may && sendable);
  useShortcut("e", "Edit the letter", () => setOpen("edit"), may && editable);
  useShortcut("d", "Discard the letter", () => setOpen("discard"), may && offered.includes("discard"));
  const close = () => setOpen(null);
  const chosen = { ids: [letter.id] };
  return (
    <div className={styles.bar}>
      <Next letter={letter} />
      {may && (
        <div className={styles.actions}>
          <Button kind="main" icon="send" disabled={!sendable} onClick={() => setOpen("replay")}>
            Replay…
          </Button>
          <Button icon="edit" disabled={!editable} onClick={() => setOpen("edit")}>
            Edit…
          </Button>
          {offered.map((verb) => (
            <Button key={verb} icon={WORDING[verb].icon} onClick={() => setOpen(verb)}>
              {`${WORDING[verb].name}…`}
            </Button>
          ))}
        </div>
      )}
      {open === "replay" && <ReplayDialog chosen={chosen} onClose={close} onDone={close} />}
      {open === "edit" && <EditDialog letter={letter} onClose={close} />}
      {open !== null && open !== "replay" && open !== "edit" && (
        <DecideDialog verb={open} chosen={chosen} onClose={close} onDone={() => undefined} />
      )}
    </div>
  );
}
