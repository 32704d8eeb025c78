import styles from "./Segments.module.css";

interface SegmentsProps<Value extends string> {
  label: string;
  options: readonly { value: Value; text: string; name?: string }[];
  chosen: Value;
  onChange: (value: Value) => void;
}

/** Buttons of which exactly one is on. */
export function Segments<Value extends string>({ label, options, chosen, onChange }: SegmentsProps<Value>) {
  return (
    <div className={styles.segments} role="group" aria-label={label}>
      {options.map(({ value, text, name }) => (
        <button
          key={value}
          type="button"
          title={name}
          aria-pressed={value === chosen}
          onClick={() => onChange(value)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}
