import styles from "./Progress.module.css";
import { count } from "./numbers";

interface ProgressProps {
  /** What it is the progress of. */
  label: string;
  done: number;
  of: number;
  /** It moves on, or waits. */
  tone?: "running" | "paused" | "done" | "cancelled";
}

/** How far something is: a bar, and the numbers beside it. */
export function Progress({ label, done, of, tone = "running" }: ProgressProps) {
  const share = of === 0 ? 1 : Math.min(1, done / of);
  return (
    <div className={styles.progress}>
      <div
        className={styles.track}
        role="progressbar"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={of}
        aria-valuenow={done}
        aria-valuetext={`${count(done)} of ${count(of)}`}
      >
        <span className={`${styles.fill} ${styles[tone]}`} style={{ width: `${share * 100}%` }} />
      </div>
      <span className={styles.numbers}>
        {count(done)} <span>/ {count(of)}</span> <b>{Math.floor(share * 100)} %</b>
      </span>
    </div>
  );
}
