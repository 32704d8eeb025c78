// What people know of a group, and who looks after it. What somebody types stays until it is saved,
// also while others save theirs.
import { useState } from "react";
import { put } from "../../api/client";
import type { GroupDocument } from "../../api/documents";
import { useMay, useMe } from "../../api/session";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Field, inputClass } from "../../parts/Field";
import { Section } from "../../parts/Page";
import { Time } from "../../parts/Time";
import styles from "./Group.module.css";

interface Draft {
  note: string;
  assignee: string;
}

export function GroupNote({ group }: { group: GroupDocument }) {
  const operator = useMay("operator");
  const me = useMe();
  const kept: Draft = { note: group.note?.note ?? "", assignee: group.note?.assignee ?? "" };
  const [draft, setDraft] = useState<Draft | null>(null);
  const shown = draft ?? kept;
  const changed = shown.note !== kept.note || shown.assignee !== kept.assignee;
  const { fingerprint } = group;
  const saving = useChange({
    change: (given: Draft, key) =>
      put(
        "/api/v1/groups/{fingerprint}/note",
        { note: given.note, assignee: given.assignee.trim() || null },
        { path: { fingerprint } },
        { key },
      ),
    touches: [["groups"]],
    done: () => "Note saved",
    then: () => setDraft(null),
  });
  return (
    <Section title="Note">
      {operator ? (
        <form
          className={styles.note}
          onSubmit={(event) => {
            event.preventDefault();
            if (changed && !saving.busy) saving.make(shown);
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
          {saving.problem && <ErrorNotice error={saving.problem} />}
          <div className={styles.noteFoot}>
            <Written group={group} />
            <Button type="submit" busy={saving.busy} disabled={!changed}>
              Save the note
            </Button>
          </div>
        </form>
      ) : (
        <div className={styles.note}>
          <p className={styles.noteText}>{kept.note || "Nothing was noted yet."}</p>
          {kept.assignee && <p>{`Looked after by ${kept.assignee}.`}</p>}
          <Written group={group} />
        </div>
      )}
    </Section>
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
