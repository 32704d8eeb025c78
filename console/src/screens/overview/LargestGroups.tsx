import { Link } from "wouter";
import { openLetters, type PlainGroup } from "../../api/documents";
import { count } from "../../parts/numbers";
import { Section, Waiting } from "../../parts/Page";
import { Sparkline } from "../../parts/Sparkline";
import { Time } from "../../parts/Time";
import { trendName, useTrends } from "../groups/useTrends";
import { NothingOpen } from "./NothingOpen";
import styles from "./Lists.module.css";

const SHOWN = 5;

export function LargestGroups({ groups }: { groups: readonly PlainGroup[] | undefined }) {
  const shown = groups?.slice(0, SHOWN) ?? [];
  const trends = useTrends(shown.map(({ fingerprint }) => fingerprint), "24h");
  return (
    <Section title="Largest groups" actions={<Link href="/groups">All groups</Link>} flush>
      {groups === undefined && <Waiting lines={5} />}
      {groups?.length === 0 && <NothingOpen />}
      <ul className={styles.list}>
        {shown.map((group) => (
          <li key={group.fingerprint}>
            <Link href={`/groups/${group.fingerprint}`} className={styles.row}>
              <span className={styles.words}>
                <b>{group.errorType}</b>
                <span>{group.reason || group.queue}</span>
              </span>
              <span className={styles.spark}>
                {trends[group.fingerprint] && (
                  <Sparkline counts={trends[group.fingerprint]!} name={trendName(trends[group.fingerprint]!, "24h")} />
                )}
              </span>
              <span className={styles.number}>
                <b>{count(openLetters(group.counts))}</b>
                <small>
                  <Time at={group.lastSeenAt} />
                </small>
              </span>
            </Link>
          </li>
        ))}
      </ul>
    </Section>
  );
}
