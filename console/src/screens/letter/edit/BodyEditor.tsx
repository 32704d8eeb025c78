import { useState } from "react";
import type { Letter } from "../../../api/documents";
import { Button } from "../../../parts/Button";
import { ErrorNotice } from "../../../parts/ErrorNotice";
import { Field, inputClass } from "../../../parts/Field";
import { bytes } from "../../../parts/numbers";
import { Waiting } from "../../../parts/Page";
import { Code } from "../../../parts/code/LazyCode";
import { contentTypeOf, standingEdit, useContent } from "../useLetter";
import type { Draft } from "./drafts";
import styles from "./EditDialog.module.css";

/** Characters that are edited here; what is larger is edited elsewhere. */
const MOST = 2 * 2 ** 20;

interface BodyEditorProps {
  letter: Letter;
  draft: Draft;
  onWrite: (part: Partial<Draft>) => void;
}

export function BodyEditor({ letter, draft, onWrite }: BodyEditorProps) {
  const stands = standingEdit(letter);
  const content = useContent(letter.id, stands !== undefined, MOST);
  // The text that it was begun with: what others save meanwhile must not replace what is written.
  const [begun, setBegun] = useState<string | null>(null);
  const [version, setVersion] = useState(0);
  const found = content.data;
  if (begun === null && found?.editable && found.text !== null) setBegun(found.text);
  const typeNow = contentTypeOf(stands ?? letter) ?? "";
  if (begun === null) {
    return (
      <div className={styles.cannot}>
        {content.error ? <ErrorNotice error={content.error} /> : found ? <p>{whyNot(letter, found)}</p> : <Waiting />}
      </div>
    );
  }
  const json = found?.kind === "json" || /[/+]json\b/.test(typeNow);
  const text = draft.body ?? begun;
  const indented = found?.pretty && !found.truncated && draft.body === null && found.pretty !== begun;
  return (
    <>
      <div className={styles.body}>
        <Code
          key={version}
          text={text}
          language={json ? "json" : "text"}
          label="New body"
          onChange={(body) => onWrite({ body: body === begun ? null : body })}
        />
      </div>
      <div className={styles.type}>
        {indented && (
          <Button
            icon="filter"
            title="Only white space between its parts changes"
            onClick={() => {
              onWrite({ body: found.pretty });
              setVersion(version + 1);
            }}
          >
            Put it on many lines
          </Button>
        )}
        <Field label="Content type">
          {(ids) => (
            <input
              {...ids}
              className={inputClass}
              spellCheck={false}
              maxLength={255}
              value={draft.contentType ?? typeNow}
              onChange={(event) =>
                onWrite({ contentType: event.target.value === typeNow ? null : event.target.value })
              }
            />
          )}
        </Field>
      </div>
    </>
  );
}

function whyNot(letter: Letter, content: { redacted: boolean; truncated: boolean; undone: string[]; kind: string }) {
  if (content.redacted) return "A redaction rule hides parts of the body: it cannot be edited as text. Headers can.";
  if (content.truncated) return `The body is too large to be edited here (${bytes(letter.size)}): use redrive letters edit.`;
  if (content.undone.length > 0) {
    return `The body has the content encoding ${content.undone.join(", ")}: it cannot be edited as text. Headers can.`;
  }
  return "The body is no text that could be written back the same: use redrive letters edit --body.";
}
