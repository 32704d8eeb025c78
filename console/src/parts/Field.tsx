import { useId, type ReactNode } from "react";
import styles from "./Field.module.css";

interface FieldProps {
  label: string;
  /** What it is for, or what may be typed. */
  hint?: ReactNode;
  children: (ids: { id: string; "aria-describedby"?: string }) => ReactNode;
}

/** A labelled input, with its hint told to screen readers too. */
export function Field({ label, hint, children }: FieldProps) {
  const id = useId();
  const hintId = `${id}-hint`;
  return (
    <div className={styles.field}>
      <label htmlFor={id}>{label}</label>
      {children(hint ? { id, "aria-describedby": hintId } : { id })}
      {hint && (
        <span id={hintId} className={styles.hint}>
          {hint}
        </span>
      )}
    </div>
  );
}

export const inputClass: string = styles.input ?? "";
export const checkClass: string = styles.check ?? "";
