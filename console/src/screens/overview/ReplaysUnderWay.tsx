import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get } from "../../api/client";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Section, Waiting } from "../../parts/Page";
import { Progress } from "../../parts/Progress";
import { Time } from "../../parts/Time";
import { ReplayBadge } from "../replays/ReplayBadge";
import styles from "./Lists.module.css";

const LOOKED_AT = 50;

/** Replays that are not at their end. */
export function ReplaysUnderWay() {
  const replays = useQuery({
    queryKey: ["replays", "newest"],
    queryFn: ({ signal }) => get("/api/v1/replays", { query: { limit: LOOKED_AT } }, { signal }),
  });
  const shown = replays.data?.items.filter(({ state }) => state === "running" || state === "paused") ?? [];
  return (
    <Section title="Replays in progress" actions={<Link href="/replays">All replays</Link>} flush>
      {replays.error && <ErrorNotice error={replays.error} retry={() => void replays.refetch()} />}
      {replays.isPending && <Waiting lines={3} />}
      {replays.data && shown.length === 0 && (
        <EmptyState icon="replays" title="No replay is in progress">
          <p>
            Fix what made letters fail, then replay <Link href="/groups">a group</Link>.
          </p>
        </EmptyState>
      )}
      <ul className={styles.list}>
        {shown.map((replay) => (
          <li key={replay.id} className={styles.stack}>
            <div className={styles.head}>
              <Link href={`/replays/${replay.id}`}>{replay.filters}</Link>
              <ReplayBadge state={replay.state} />
              <span className={styles.faint}>
                <Time at={replay.createdAt} /> by {replay.actor}
              </span>
            </div>
            <Progress label={replay.filters} done={replay.position} of={replay.letters} tone={replay.state} />
            {replay.reason && <span className={styles.faint}>{replay.reason}</span>}
          </li>
        ))}
      </ul>
    </Section>
  );
}
