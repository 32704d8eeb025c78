import { Link } from "wouter";
import styles from "./Bars.module.css";
import { count } from "./numbers";

export interface Bar {
  key: string;
  name: string;
  number: number;
  /** Where it leads. */
  to: string;
}

/** Names with their numbers, the length of each bar being its share of the largest. */
export function Bars({ bars, label }: { bars: readonly Bar[]; label: string }) {
  const most = Math.max(1, ...bars.map(({ number }) => number));
  return (
    <ul className={styles.bars} aria-label={label}>
      {bars.map(({ key, name, number, to }) => (
        <li key={key}>
          <Link href={to} className={styles.bar}>
            <span className={styles.fill} style={{ width: `${(100 * number) / most}%` }} aria-hidden="true" />
            <span className={styles.name} title={name}>
              {name}
            </span>
            <span className={styles.number}>{count(number)}</span>
          </Link>
        </li>
      ))}
    </ul>
  );
}
