import { useState } from "react";
import { Button } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { Field, inputClass } from "../../parts/Field";
import { FIELDS, type FieldName, type LetterFilters } from "./filters";
import styles from "./FieldsDialog.module.css";

/** Every filter that letters have, at once. */
export function FieldsDialog({ filters, onClose }: { filters: LetterFilters; onClose: () => void }) {
  const [typed, setTyped] = useState<Partial<Record<FieldName, string>>>(filters.values);
  const apply = () => {
    filters.set(Object.fromEntries(FIELDS.map(({ name }) => [name, typed[name]?.trim() ?? ""])));
    onClose();
  };
  return (
    <Dialog
      title="Filters"
      wide
      onClose={onClose}
      onSubmit={apply}
      actions={
        <>
          <Button onClick={() => setTyped({})}>Empty all</Button>
          <Button kind="main" type="submit">
            Show letters
          </Button>
        </>
      }
    >
      <p className={styles.about}>
        All that are given must hold. <code>*</code> stands for any text, <code>?</code> for one character.
      </p>
      <div className={styles.fields}>
        {FIELDS.map(({ name, label, hint }, index) => (
          <Field key={name} label={label}>
            {(ids) => (
              <input
                {...ids}
                className={inputClass}
                autoFocus={index === 0}
                placeholder={hint}
                maxLength={1000}
                spellCheck={false}
                autoCapitalize="none"
                value={typed[name] ?? ""}
                onChange={(event) => setTyped({ ...typed, [name]: event.target.value })}
              />
            )}
          </Field>
        ))}
      </div>
    </Dialog>
  );
}
