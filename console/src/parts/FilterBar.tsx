// A row of filters above a list: a search, choices, and what is chosen as chips that can be taken off.
import { useEffect, useRef, useState, type ReactNode, type Ref } from "react";
import { Button } from "./Button";
import { inputClass } from "./Field";
import styles from "./FilterBar.module.css";
import { Icon } from "./Icon";

export function FilterBar({ children }: { children: ReactNode }) {
  return (
    <div className={styles.bar} role="search">
      {children}
    </div>
  );
}

const PATIENCE = 300;

interface SearchProps {
  label: string;
  placeholder?: string;
  value: string;
  onChange: (value: string) => void;
  ref?: Ref<HTMLInputElement>;
}

/** Told a moment after the last key, or at once with Enter. */
export function SearchInput({ label, placeholder, value, onChange, ref }: SearchProps) {
  const [typed, setTyped] = useState(value);
  const told = useRef(value);
  useEffect(() => {
    // Changed from elsewhere (Back, "clear"): not by the words that are being typed.
    if (value !== told.current) {
      told.current = value;
      setTyped(value);
    }
  }, [value]);
  const tell = (text: string) => {
    if (text === told.current) return;
    told.current = text;
    onChange(text);
  };
  useEffect(() => {
    const timer = window.setTimeout(() => tell(typed), PATIENCE);
    return () => window.clearTimeout(timer);
  });
  return (
    <div className={styles.search}>
      <Icon name="search" size={16} />
      <input
        ref={ref}
        type="search"
        className={inputClass}
        aria-label={label}
        placeholder={placeholder ?? label}
        value={typed}
        maxLength={1000}
        spellCheck={false}
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") tell(typed);
          if (event.key === "Escape" && typed) {
            event.stopPropagation();
            setTyped("");
            tell("");
          }
        }}
      />
    </div>
  );
}

interface ChoicesProps<Value extends string> {
  label: string;
  options: readonly { value: Value; text: ReactNode }[];
  chosen: readonly Value[];
  onChange: (chosen: Value[]) => void;
}

/** Buttons of which any number may be on. */
export function Choices<Value extends string>({ label, options, chosen, onChange }: ChoicesProps<Value>) {
  return (
    <div className={styles.choices} role="group" aria-label={label}>
      {options.map(({ value, text }) => {
        const on = chosen.includes(value);
        return (
          <button
            key={value}
            type="button"
            className={styles.choice}
            aria-pressed={on}
            onClick={() => onChange(on ? chosen.filter((each) => each !== value) : [...chosen, value])}
          >
            {text}
          </button>
        );
      })}
    </div>
  );
}

/** A filter that holds, with a cross that takes it off. */
export function Chip(props: { name: string; value: string; onRemove: () => void }) {
  return (
    <span className={styles.chip}>
      <span className={styles.chipName}>{props.name}</span>
      <span className={styles.chipValue}>{props.value}</span>
      <Button kind="quiet" icon="close" iconOnly onClick={props.onRemove}>
        {`Remove filter ${props.name}`}
      </Button>
    </span>
  );
}
