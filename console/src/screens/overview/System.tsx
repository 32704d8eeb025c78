// Whether broker and store answer, and whether letters may be sent now.
import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import { useConnection } from "../../api/connection";
import type { Health } from "../../api/documents";
import { sentence } from "../../parts/ErrorNotice";
import { Notice } from "../../parts/Notice";
import styles from "./System.module.css";

const EVERY = 10_000;

/** Null: nobody knows, as there is no answer; what was read before may be no longer so. Undefined:
 * the first answer is still to come. */
function useHealth(): Health | null | undefined {
  const away = useConnection() === "away";
  const health = useQuery({
    queryKey: ["health"],
    queryFn: ({ signal }) => get("/api/v1/health", {}, { signal }),
    refetchInterval: EVERY,
    staleTime: EVERY / 2,
  });
  const failed = health.isError || health.failureCount > 0 || (health.isPending && health.errorUpdateCount > 0);
  return away || failed ? null : health.data;
}

/** What stands in the way, above everything else; nothing while all is well. */
export function Trouble() {
  const health = useHealth();
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
  const health = useHealth();
  if (health === undefined) return null;
  return (
    <ul className={styles.strip} aria-label="System" title={health ? `Redrive ${health.version}` : undefined}>
      {(health ? marksOf(health) : UNKNOWN).map(({ name, tone, word }) => (
        <li key={name}>
          {name} <span className={`${styles.state} ${styles[tone]}`}>{word}</span>
        </li>
      ))}
    </ul>
  );
}

interface Mark {
  name: string;
  tone: "good" | "bad" | "unsure";
  word: string;
}

const UNKNOWN: readonly Mark[] = ["Broker", "Publishing", "Store", "Load"].map((name) => ({
  name,
  tone: "unsure",
  word: "not known",
}));

function marksOf({ broker, blocked, store, busy }: Health): readonly Mark[] {
  const publishing: Omit<Mark, "name"> = !broker.ok
    ? { tone: "unsure", word: "not known" }
    : blocked
      ? { tone: "bad", word: "blocked" }
      : { tone: "good", word: "open" };
  return [
    { name: "Broker", tone: broker.ok ? "good" : "bad", word: broker.ok ? "reachable" : "away" },
    { name: "Publishing", ...publishing },
    { name: "Store", tone: store.ok ? "good" : "bad", word: store.ok ? "answers" : "silent" },
    { name: "Load", tone: busy.length > 0 ? "unsure" : "good", word: busy.length > 0 ? "high" : "fine" },
  ];
}
