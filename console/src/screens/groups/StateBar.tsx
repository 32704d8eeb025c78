import { STATES, wordOf, type Counts } from "../../api/documents";
import { count } from "../../parts/numbers";
import styles from "./StateBar.module.css";

/** How the letters of a group are spread over the states. */
export function StateBar({ counts }: { counts: Counts }) {
  const shown = STATES.filter((state) => counts[state] > 0);
  const words = shown.map((state) => `${count(counts[state])} ${wordOf(state)}`).join(", ");
  return (
    <span className={styles.bar} role="img" aria-label={words} title={words}>
      {shown.map((state) => (
        <span key={state} className={styles[wordOf(state)]} style={{ flexGrow: counts[state] }} />
      ))}
    </span>
  );
}
