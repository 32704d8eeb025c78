import { useId, type ReactNode } from "react";
import styles from "./Tabs.module.css";

interface TabsProps<Name extends string> {
  label: string;
  tabs: readonly { name: Name; text: string }[];
  chosen: Name;
  onChange: (name: Name) => void;
  /** Stands at the right of the tabs. */
  beside?: ReactNode;
  children: ReactNode;
}

/** Several forms of one thing. Arrow keys go from tab to tab. */
export function Tabs<Name extends string>(props: TabsProps<Name>) {
  const { tabs, chosen, onChange } = props;
  const id = useId();
  const step = (by: number) => {
    const at = tabs.findIndex(({ name }) => name === chosen);
    const next = tabs[(at + by + tabs.length) % tabs.length];
    if (next) {
      onChange(next.name);
      document.getElementById(`${id}-${next.name}`)?.focus();
    }
  };
  return (
    <>
      <div className={styles.head}>
        <div
          role="tablist"
          aria-label={props.label}
          className={styles.tabs}
          onKeyDown={(event) => {
            if (event.key === "ArrowRight") step(1);
            if (event.key === "ArrowLeft") step(-1);
          }}
        >
          {tabs.map(({ name, text }) => (
            <button
              key={name}
              type="button"
              role="tab"
              id={`${id}-${name}`}
              aria-selected={name === chosen}
              aria-controls={`${id}-panel`}
              tabIndex={name === chosen ? 0 : -1}
              className={styles.tab}
              onClick={() => onChange(name)}
            >
              {text}
            </button>
          ))}
        </div>
        {props.beside && <div className={styles.beside}>{props.beside}</div>}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${chosen}`} className={styles.panel}>
        {props.children}
      </div>
    </>
  );
}
