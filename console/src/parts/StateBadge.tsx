import { wordOf, type State } from "../api/documents";
import styles from "./StateBadge.module.css";

/** A letter's state: a word first, a colour second. */
export function StateBadge({ state }: { state: State }) {
  const word = wordOf(state);
  return <span className={`${styles.badge} ${styles[word]}`}>{word}</span>;
}

/** A word in the same form, for other things that have a state. */
export function Badge({ tone, children }: { tone: Tone; children: React.ReactNode }) {
  return <span className={`${styles.badge} ${styles[tone]}`}>{children}</span>;
}

export type Tone = "pending" | "processing" | "resolved" | "failed" | "manual" | "archived";
