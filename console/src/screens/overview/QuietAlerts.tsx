// Alerts that do not fire, folded away; and whether somebody judges and tells them at all.
import { useAlerts } from "../../api/useAlerts";
import type { Alert, WaitingSink } from "../../api/documents";
import { ErrorNotice, sentence } from "../../parts/ErrorNotice";
import { Icon } from "../../parts/Icon";
import { Notice } from "../../parts/Notice";
import { counted } from "../../parts/numbers";
import { Badge } from "../../parts/StateBadge";
import { Time } from "../../parts/Time";
import { AlertActions } from "./AlertActions";
import { byUrgency } from "./alertWords";
import styles from "./Alerts.module.css";
import { Condition } from "./FiringAlerts";

/** They are judged every 15 seconds by any janitor. */
const OVERDUE = 120_000;

export function QuietAlerts() {
  const { data, error, refetch, dataUpdatedAt } = useAlerts();
  const items = data?.items ?? [];
  const others = items.filter(({ phase }) => phase !== "firing").sort(byPhase);
  const judged = items.map(({ judgedAt }) => judgedAt ?? "").reduce((one, other) => (one > other ? one : other), "");
  const overdue = judged === "" || dataUpdatedAt - Date.parse(judged) > OVERDUE;
  return (
    <>
      {error && <ErrorNotice error={error} retry={() => void refetch()} />}
      {data?.waiting.map((sink) => sink.error !== null && <Untold key={sink.sink} sink={sink} />)}
      {others.length > 0 && (
        <details className={styles.quiet}>
          <summary>
            <Icon name={overdue ? "clock" : "check"} size={16} />
            <span>{overdue ? <Unjudged since={judged} /> : calm(items.length, others)}</span>
          </summary>
          <ul className={styles.list} aria-label="Alerts that do not fire">
            {others.map((alert) => (
              <li key={alert.name} className={styles.other}>
                <Other alert={alert} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function byPhase(one: Alert, other: Alert): number {
  return Number(one.phase === "quiet") - Number(other.phase === "quiet") || byUrgency(one, other);
}

function calm(all: number, others: readonly Alert[]): string {
  const quiet = others.filter(({ phase }) => phase === "quiet").length;
  const soon = others.length - quiet;
  return [
    ...(others.length === all ? ["No alert fires."] : []),
    ...(soon > 0 ? [`${counted(soon, "alert")} may fire soon.`] : []),
    ...(quiet > 0 ? [`${counted(quiet, "alert is", "alerts are")} quiet.`] : []),
  ].join(" ");
}

function Unjudged({ since }: { since: string }) {
  return (
    <>
      {since === "" ? (
        "Nobody has judged alerts yet: "
      ) : (
        <>
          Nobody judges alerts; the last time was <Time at={since} />:{" "}
        </>
      )}
      <code>redrive run</code> does, with the role janitor.
    </>
  );
}

function Untold({ sink }: { sink: WaitingSink }) {
  return (
    <Notice tone="warning" title={`${sink.sink} has not taken ${counted(sink.messages, "message")} about alerts`}>
      {sentence(sink.error ?? "")} It is tried again by itself.
    </Notice>
  );
}

function Other({ alert }: { alert: Alert }) {
  return (
    <>
      <div className={styles.head}>
        <h3>{alert.name}</h3>
        <span className={styles.faint}>{alert.severity}</span>
        {alert.phase === "pending" && <Badge tone="manual">may fire soon</Badge>}
        <AlertActions alert={alert} />
      </div>
      <p className={styles.faint}>
        {alert.summary} <Condition alert={alert} />
        {alert.phase === "pending" && (
          <>
            ; it holds since <Time at={alert.since} />
          </>
        )}
      </p>
    </>
  );
}
