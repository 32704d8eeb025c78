import { OPEN, wordOf, type Stats } from "../../api/documents";
import { Section, Waiting } from "../../parts/Page";
import { StateBadge } from "../../parts/StateBadge";
import { lasting, Time } from "../../parts/Time";
import { count } from "../../parts/numbers";
import styles from "./Facts.module.css";

/** How long letters stay: those that were resolved, and those that still wait. */
export function TimeInDlq({ stats }: { stats: Stats | undefined }) {
  return (
    <Section title="Time in the DLQ">{stats ? <Facts stats={stats} /> : <Waiting lines={4} />}</Section>
  );
}

function Facts({ stats }: { stats: Stats }) {
  const { letters, median, p95 } = stats.timeToResolve;
  const waiting = OPEN.filter((state) => stats.oldest[state]);
  return (
    <div className={styles.facts}>
      <dl className={styles.figures}>
        <div>
          <dt>Median</dt>
          <dd>{median === null ? "–" : lasting(median * 1000)}</dd>
        </div>
        <div>
          <dt>95 %</dt>
          <dd>{p95 === null ? "–" : lasting(p95 * 1000)}</dd>
        </div>
      </dl>
      <p className={styles.note}>
        {letters === 0
          ? "No letter was resolved yet."
          : `From arrival to resolution, of the last ${count(letters)} resolved.`}
      </p>
      {waiting.length > 0 && (
        <dl className={styles.lines}>
          {waiting.map((state) => (
            <div key={state}>
              <dt>
                Oldest <StateBadge state={state} />
              </dt>
              <dd>
                <Time at={stats.oldest[state]} absent={wordOf(state)} />
              </dd>
            </div>
          ))}
        </dl>
      )}
    </div>
  );
}
