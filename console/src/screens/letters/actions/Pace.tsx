import { Field, inputClass } from "../../../parts/Field";
import styles from "./ReplayDialog.module.css";

export interface PaceTyped {
  batchSize: string;
  rate: string;
}

/** How fast: what was typed, as the API takes it. What is empty is the server's choice. */
export function paceOf(typed: PaceTyped): { batchSize?: number; rate?: number } {
  const pace: { batchSize?: number; rate?: number } = {};
  if (typed.batchSize.trim()) pace.batchSize = Number(typed.batchSize);
  if (typed.rate.trim()) pace.rate = Number(typed.rate);
  return pace;
}

export function Pace({ typed, onChange }: { typed: PaceTyped; onChange: (typed: PaceTyped) => void }) {
  return (
    <div className={styles.pace}>
      <Field label="Letters a batch" hint="100 unless said otherwise, with a second between batches.">
        {(ids) => (
          <input
            {...ids}
            className={inputClass}
            inputMode="numeric"
            placeholder="100"
            value={typed.batchSize}
            onChange={(event) => onChange({ ...typed, batchSize: event.target.value })}
          />
        )}
      </Field>
      <Field label="At most a second" hint="No limit unless said otherwise.">
        {(ids) => (
          <input
            {...ids}
            className={inputClass}
            inputMode="decimal"
            placeholder="no limit"
            value={typed.rate}
            onChange={(event) => onChange({ ...typed, rate: event.target.value })}
          />
        )}
      </Field>
    </div>
  );
}
