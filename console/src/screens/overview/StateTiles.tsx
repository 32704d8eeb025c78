import { Link } from "wouter";
import { STATES, wordOf, type Counts } from "../../api/documents";
import { count, shortly } from "../../parts/numbers";
import styles from "./StateTiles.module.css";

const MEANS: Record<string, string> = {
  pending: "a worker sends them",
  processing: "sent, no verdict yet",
  manual: "a person decides",
  failed: "given up",
  resolved: "taken for consumed",
  archived: "put away",
};

/** How many letters are in each state; each leads to them. */
export function StateTiles({ states }: { states: Counts | null }) {
  return (
    <ul className={styles.tiles} aria-label="Letters by state">
      {STATES.map((state) => {
        const word = wordOf(state);
        const number = states?.[state];
        return (
          <li key={state}>
            <Link
              href={`/letters?status=${word}`}
              className={`${styles.tile} ${number ? styles[word] : styles.none}`}
            >
              <span className={styles.word}>{word}</span>
              <span className={styles.number} title={number === undefined ? undefined : count(number)}>
                {number === undefined ? "–" : shortly(number)}
              </span>
              <span className={styles.about}>{MEANS[word]}</span>
            </Link>
          </li>
        );
      })}
    </ul>
  );
}
