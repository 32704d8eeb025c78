// Edit every letter of a group by a JSON Patch: first a dry run that shows one of them, then all.
import { useState } from "react";
import { ask, post } from "../../api/client";
import type { EditedMany, Selection } from "../../api/documents";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { ErrorNotice, sentence } from "../../parts/ErrorNotice";
import { checkClass, Field, inputClass } from "../../parts/Field";
import { ReasonField } from "../../parts/ReasonField";
import { count, counted } from "../../parts/numbers";
import { DiffView } from "../letter/edit/DiffView";
import styles from "./EditGroup.module.css";

const EXAMPLE = `[
  {"op": "replace", "path": "/currency", "value": "EUR"}
]`;

interface EditGroupProps {
  filter: Selection;
  onClose: () => void;
}

export function EditGroup({ filter, onClose }: EditGroupProps) {
  const [patch, setPatch] = useState("");
  const [reason, setReason] = useState("");
  const [skipUnfit, setSkipUnfit] = useState(false);
  const [seen, setSeen] = useState<{ patch: string; found: EditedMany } | null>(null);
  const looking = useChange({
    change: (patchText: string) => ask("/api/v1/letters/edit", { filter, patchText, dryRun: true }),
    touches: [],
    then: (found, patchText) => setSeen({ patch: patchText, found }),
  });
  const editing = useChange({
    change: (given: { patchText: string; count: number; reason: string; skipUnfit: boolean }, key) =>
      post("/api/v1/letters/edit", { filter, ...given }, {}, { key }),
    touches: [["letters"], ["letter"], ["groups"]],
    done: ({ edited }) => `${counted(edited, "letter")} edited`,
    then: onClose,
  });
  // What was seen holds for the patch that it was seen of.
  const found = seen?.patch === patch ? seen.found : null;
  const unfit = (found?.unfit.length ?? 0) > 0;
  const ready = found !== null && found.fit > 0 && (!unfit || skipUnfit);
  const submit = () => {
    if (ready) editing.make({ patchText: patch, count: found.letters, reason, skipUnfit });
    else if (patch.trim()) looking.make(patch);
  };
  return (
    <Dialog
      title="Edit the letters of a group"
      wide
      onClose={onClose}
      onSubmit={() => {
        if (!looking.busy && !editing.busy) submit();
      }}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button icon="search" busy={looking.busy} disabled={!patch.trim()} onClick={() => looking.make(patch)}>
            Show what it would do
          </Button>
          <Button kind="main" icon="edit" type="submit" busy={editing.busy} disabled={!ready}>
            {found ? `Edit ${counted(found.fit, "letter")}` : "Edit"}
          </Button>
        </>
      }
    >
      <p>
        A JSON Patch (RFC 6902) for each body. Only what it names changes, every other byte stays; the originals are
        kept, and each edit can be undone until it is sent.
      </p>
      <Field label="JSON Patch" hint="First it is shown what it would do to one of them.">
        {(ids) => (
          <textarea
            {...ids}
            className={`${inputClass} ${styles.patch}`}
            autoFocus
            rows={6}
            spellCheck={false}
            placeholder={EXAMPLE}
            value={patch}
            onChange={(event) => setPatch(event.target.value)}
          />
        )}
      </Field>
      {looking.problem && <ErrorNotice error={looking.problem} />}
      {found && <Found found={found} />}
      {unfit && (
        <label className={checkClass}>
          <input type="checkbox" checked={skipUnfit} onChange={(event) => setSkipUnfit(event.target.checked)} />
          Leave those out, and edit the others
        </label>
      )}
      <ReasonField value={reason} onChange={setReason} hint="It stands in the history of each letter, and in the audit log." autoFocus={false} />
      {editing.problem && (
        <ErrorNotice
          error={editing.problem}
          retry={
            editing.problem.kind === "count-changed"
              ? () => {
                  editing.forget();
                  looking.make(patch);
                }
              : undefined
          }
        />
      )}
    </Dialog>
  );
}

function Found({ found }: { found: EditedMany }) {
  return (
    <section className={styles.found} aria-label="Dry run">
      <h3>{`It fits ${count(found.fit)} of ${counted(found.letters, "letter")}`}</h3>
      {found.unchanged > 0 && <p>{`${counted(found.unchanged, "letter would stay as it is", "letters would stay as they are")}.`}</p>}
      {found.unfit.map(({ reason, letters }) => (
        <p key={reason} className={styles.unfit}>{`${counted(letters, "letter")}: ${sentence(reason)}`}</p>
      ))}
      {found.sample && (
        <>
          <p>One of them:</p>
          <DiffView lines={found.sample.diff} />
        </>
      )}
    </section>
  );
}
