import type { Letter } from "../../api/documents";
import { Time } from "../../parts/Time";
import { happeningsOf } from "./happenings";
import styles from "./Timeline.module.css";

/** From the first death to now, and what is due. */
export function Timeline({ letter }: { letter: Letter }) {
  return (
    <ol className={styles.timeline}>
      {happeningsOf(letter).map((happening, index) => (
        <li key={index} className={happening.ahead ? styles.ahead : ""} data-tone={happening.tone}>
          <span className={styles.what}>{happening.what}</span>
          <span className={styles.when}>
            <Time at={happening.at} absent="unknown time" />
          </span>
          {happening.more && <span className={styles.more}>{happening.more}</span>}
        </li>
      ))}
    </ol>
  );
}
