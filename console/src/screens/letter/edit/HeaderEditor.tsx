import { useState } from "react";
import type { Header } from "../../../api/documents";
import { Button } from "../../../parts/Button";
import { inputClass } from "../../../parts/Field";
import { NOT_THE_PUBLISHERS } from "../Headers";
import { headerText } from "../headerText";
import type { Draft } from "./drafts";
import styles from "./EditDialog.module.css";

interface HeaderEditorProps {
  headers: readonly Header[];
  draft: Draft;
  onWrite: (part: Partial<Draft>) => void;
}

const AS_TEXT = /^(longstr|void|bool|u?int\d+|float|double)$/;

/** Headers keep their types; new ones are text. */
export function HeaderEditor({ headers, draft, onWrite }: HeaderEditorProps) {
  const [name, setName] = useState("");
  const there = new Map(headers.map((header) => [header.name, header]));
  const added = Object.keys(draft.headers).filter((each) => !there.has(each));
  const set = (header: string, value: string | null | undefined) => {
    const { [header]: _, ...others } = draft.headers;
    onWrite({ headers: value === undefined ? others : { ...others, [header]: { value } } });
  };
  const add = () => {
    if (name.trim() && !there.has(name.trim())) set(name.trim(), "");
    setName("");
  };
  return (
    <div className={styles.headers}>
      {headers
        .filter((header) => !NOT_THE_PUBLISHERS.test(header.name))
        .map((header, index) => {
          const changed = draft.headers[header.name];
          const before = headerText(header);
          const removed = changed?.value === null;
          return (
            <div key={`${index} ${header.name}`} className={`${styles.header} ${removed ? styles.removed : ""}`}>
              <span className={styles.name}>
                {header.name} <small>{header.type}</small>
              </span>
              <input
                className={inputClass}
                aria-label={`Value of ${header.name}`}
                disabled={removed || !AS_TEXT.test(header.type)}
                value={changed?.value ?? before}
                onChange={(event) => set(header.name, event.target.value === before ? undefined : event.target.value)}
              />
              <Button
                kind="quiet"
                icon={changed ? "restore" : "discard"}
                iconOnly
                onClick={() => set(header.name, changed ? undefined : null)}
              >
                {changed ? `Leave ${header.name} as it was` : `Remove ${header.name}`}
              </Button>
            </div>
          );
        })}
      {added.map((each) => (
        <div key={each} className={styles.header}>
          <span className={styles.name}>
            {each} <small>new</small>
          </span>
          <input
            className={inputClass}
            aria-label={`Value of ${each}`}
            value={draft.headers[each]?.value ?? ""}
            onChange={(event) => set(each, event.target.value)}
          />
          <Button kind="quiet" icon="discard" iconOnly onClick={() => set(each, undefined)}>
            {`Remove ${each}`}
          </Button>
        </div>
      ))}
      <div className={styles.header}>
        <input
          className={inputClass}
          aria-label="Name of a new header"
          placeholder="Name of a new header"
          spellCheck={false}
          maxLength={255}
          value={name}
          onChange={(event) => setName(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter") {
              event.preventDefault();
              add();
            }
          }}
        />
        <span />
        <Button icon="plus" disabled={name.trim() === ""} onClick={add}>
          Add
        </Button>
      </div>
    </div>
  );
}
