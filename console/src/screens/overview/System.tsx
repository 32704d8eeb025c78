// Whether broker and store answer, and whether letters may be sent now.
import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import type { Health } from "../../api/documents";
import { ErrorNotice, sentence } from "../../parts/ErrorNotice";
import { Notice } from "../../parts/Notice";
import { Section, Waiting } from "../../parts/Page";
import styles from "./Facts.module.css";

const EVERY = 10_000;

function useHealth() {
  return useQuery({
    queryKey: ["health"],
    queryFn: ({ signal }) => get("/api/v1/health", {}, { signal }),
    refetchInterval: EVERY,
    staleTime: EVERY / 2,
  });
}

/** What stands in the way, above everything else; nothing while all is well. */
export function Trouble() {
  const { data: health } = useHealth();
  if (!health) return null;
  const other = health.unmet.filter((each) => !(health.blocked && each.includes("blocks publishers")));
  return (
    <>
      {!health.broker.ok && (
        <Notice tone="danger" title="The broker cannot be reached">
          {sentence(health.broker.detail ?? "")} Nothing is sent or collected until it answers; messages stay in their
          queues.
        </Notice>
      )}
      {!health.store.ok && (
        <Notice tone="danger" title="The store does not answer">
          {sentence(health.store.detail ?? "")}
        </Notice>
      )}
      {health.blocked && (
        <Notice tone="danger" title="The broker blocks publishers (connection.blocked)">
          It is short of memory or disk space. Nothing is sent until the alarm is over; free memory or disk there.
        </Notice>
      )}
      {other.length > 0 && (
        <Notice tone="warning" title="Letters should not be sent in numbers now">
          {other.map(sentence).join(" ")}
        </Notice>
      )}
    </>
  );
}

export function System() {
  const health = useHealth();
  return (
    <Section title="System">
      {health.error && <ErrorNotice error={health.error} retry={() => void health.refetch()} />}
      {health.data ? <Lines health={health.data} /> : !health.error && <Waiting lines={3} />}
    </Section>
  );
}

function Lines({ health }: { health: Health }) {
  const busy = health.unmet.length > 0;
  const publishing = !health.broker.ok ? "unknown" : health.blocked ? "blocked" : "open";
  return (
    <dl className={styles.lines}>
      <Line name="Broker" tone={health.broker.ok ? "good" : "bad"} word={health.broker.ok ? "reachable" : "away"} />
      <Line
        name="Publishing"
        tone={{ open: "good", blocked: "bad", unknown: "unsure" }[publishing] as Tone}
        word={publishing}
      />
      <Line name="Store" tone={health.store.ok ? "good" : "bad"} word={health.store.ok ? "answers" : "silent"} />
      <Line name="Load" tone={busy ? "unsure" : "good"} word={busy ? "high" : "fine"} />
      <div>
        <dt>Redrive</dt>
        <dd>{health.version}</dd>
      </div>
    </dl>
  );
}

type Tone = "good" | "bad" | "unsure";

function Line({ name, tone, word }: { name: string; tone: Tone; word: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd className={`${styles.state} ${styles[tone]}`}>{word}</dd>
    </div>
  );
}
