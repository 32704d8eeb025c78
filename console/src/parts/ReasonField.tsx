import { Field, inputClass } from "./Field";

/** As much as the API takes. */
const LONGEST = 2000;

interface ReasonFieldProps {
  value: string;
  onChange: (reason: string) => void;
  /** Who will read it. */
  hint: string;
  autoFocus?: boolean;
}

/** Why somebody does something: one line, in their own words. */
export function ReasonField({ value, onChange, hint, autoFocus = true }: ReasonFieldProps) {
  return (
    <Field label="Reason" hint={hint}>
      {(ids) => (
        <input
          {...ids}
          className={inputClass}
          autoFocus={autoFocus}
          maxLength={LONGEST}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}
