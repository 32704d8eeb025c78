// Whether broker and store answer, and whether letters may be sent now.
import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import { sentence } from "../../parts/ErrorNotice";
import { Notice } from "../../parts/Notice";
import styles from "./System.module.css";

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
      {health.busy.length > 0 && (
        <Notice tone="warning" title="Letters should not be sent in numbers now">
          {health.busy.map(sentence).join(" ")}
        </Notice>
      )}
    </>
  );
}

/** The same in one line, also while all is well. */
export function System() {
  const { data: health } = useHealth();
  if (!health) return null;
  const busy = health.busy.length > 0;
  const publishing = !health.broker.ok ? "unknown" : health.blocked ? "blocked" : "open";
  const tones = { open: "good", blocked: "bad", unknown: "unsure" } as const;
  return (
    <ul className={styles.strip} aria-label="System" title={`Redrive ${health.version}`}>
      <Mark name="Broker" tone={health.broker.ok ? "good" : "bad"} word={health.broker.ok ? "reachable" : "away"} />
      <Mark name="Publishing" tone={tones[publishing]} word={publishing} />
      <Mark name="Store" tone={health.store.ok ? "good" : "bad"} word={health.store.ok ? "answers" : "silent"} />
      <Mark name="Load" tone={busy ? "unsure" : "good"} word={busy ? "high" : "fine"} />
    </ul>
  );
}

function Mark({ name, tone, word }: { name: string; tone: "good" | "bad" | "unsure"; word: string }) {
  return (
    <li>
      {name} <span className={`${styles.state} ${styles[tone]}`}>{word}</span>
    </li>
  );
}
