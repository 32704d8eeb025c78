// What people know of a group, and who looks after it. What somebody types stays until it is saved,
// also while others save theirs: then both are shown, and the writer decides.
import { useState } from "react";
import { put } from "../../api/client";
import type { GroupDocument } from "../../api/documents";
import { useMay, useMe } from "../../api/session";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Field, inputClass } from "../../parts/Field";
import { Notice } from "../../parts/Notice";
import { Section } from "../../parts/Page";
import { Time } from "../../parts/Time";
import styles from "./Group.module.css";

interface Draft {
  note: string;
  assignee: string;
  /** When the note that it was made from was written; null: there was none. */
  madeFrom: string | null;
}

export function GroupNote({ group }: { group: GroupDocument }) {
  const operator = useMay("operator");
  const me = useMe();
  const kept: Draft = {
    note: group.note?.note ?? "",
    assignee: group.note?.assignee ?? "",
    madeFrom: group.note?.updatedAt ?? null,
  };
  const [draft, setDraft] = useState<Draft | null>(null);
  const shown = draft ?? kept;
  const changed = shown.note !== kept.note || shown.assignee !== kept.assignee;
  const { fingerprint } = group;
  const saving = useChange({
    change: (given: Draft, key) =>
      put(
        "/api/v1/groups/{fingerprint}/note",
        { note: given.note, assignee: given.assignee.trim() || null, madeFrom: given.madeFrom },
        { path: { fingerprint } },
        { key },
      ),
    touches: [["groups"]],
    done: () => "Note saved",
    then: () => setDraft(null),
  });
  const overtaken = changed && shown.madeFrom !== kept.madeFrom && !saving.busy;
  const goOnWith = (chosen: Draft | null) => {
    setDraft(chosen);
    saving.forget();
  };
  return (
    <Section title="Note">
      {operator ? (
        <form
          className={styles.note}
          onSubmit={(event) => {
            event.preventDefault();
            if (changed && !overtaken && !saving.busy) saving.make(shown);
          }}
        >
          <Field label="What is known">
            {(ids) => (
              <textarea
                {...ids}
                className={inputClass}
                rows={3}
                maxLength={10_000}
                placeholder="Cause, ticket, what to wait for"
                value={shown.note}
                onChange={(event) => setDraft({ ...shown, note: event.target.value })}
              />
            )}
          </Field>
          <Field label="Looked after by">
            {(ids) => (
              <input
                {...ids}
                className={inputClass}
                maxLength={100}
                placeholder={me.name ?? "a name"}
                value={shown.assignee}
                onChange={(event) => setDraft({ ...shown, assignee: event.target.value })}
              />
            )}
          </Field>
          {overtaken ? (
            <Notice tone="warning" title="Somebody else changed the note while you were writing">
              <Text note={kept} />
              <div className={styles.noteChoice}>
                <Button onClick={() => goOnWith(null)}>Take theirs</Button>
                <Button onClick={() => goOnWith({ ...shown, madeFrom: kept.madeFrom })}>Go on with mine</Button>
              </div>
            </Notice>
          ) : (
            saving.problem && <ErrorNotice error={saving.problem} />
          )}
          <div className={styles.noteFoot}>
            <Written group={group} />
            <Button type="submit" busy={saving.busy} disabled={!changed || overtaken}>
              Save the note
            </Button>
          </div>
        </form>
      ) : (
        <div className={styles.note}>
          <Text note={kept} />
          <Written group={group} />
        </div>
      )}
    </Section>
  );
}

function Text({ note }: { note: Draft }) {
  return (
    <>
      <p className={styles.noteText}>{note.note || "Nothing is noted."}</p>
      {note.assignee && <p>{`Looked after by ${note.assignee}.`}</p>}
    </>
  );
}

function Written({ group }: { group: GroupDocument }) {
  return (
    <span>
      {group.note && (
        <>
          <Time at={group.note.updatedAt} /> by {group.note.updatedBy}
        </>
      )}
    </span>
  );
}
