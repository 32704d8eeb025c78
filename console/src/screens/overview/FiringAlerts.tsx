// Alerts that fire, before everything else; nothing while none does.
import { Link } from "wouter";
import { isLoud, useAlerts } from "../../api/useAlerts";
import type { Alert } from "../../api/documents";
import { counted } from "../../parts/numbers";
import { Section } from "../../parts/Page";
import { Badge } from "../../parts/StateBadge";
import { Time } from "../../parts/Time";
import { AlertActions } from "./AlertActions";
import { byUrgency, placesOf, TONES, valueOf } from "./alertWords";
import styles from "./Alerts.module.css";

export function FiringAlerts() {
  const items = useAlerts().data?.items ?? [];
  const firing = items.filter(({ phase }) => phase === "firing").sort(byUrgency);
  const loud = firing.filter(isLoud).length;
  return (
    <>
      {/* It stands there from the start, so that screen readers tell when it changes. */}
      <p className="unseen" role="status">
        {loud > 0 && `${counted(loud, "alert fires", "alerts fire")}.`}
      </p>
      {firing.length > 0 && (
        <Section title="Alerts" actions={<span className={styles.faint}>{tally(firing.length, loud)}</span>} flush>
          <ul className={styles.list}>
            {firing.map((alert) => (
              <li key={alert.name} className={`${styles.firing} ${styles[alert.silence ? "silenced" : alert.severity]}`}>
                <Firing alert={alert} />
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}

function tally(firing: number, loud: number): string {
  const silenced = firing === loud ? "" : `, ${firing - loud} of them silenced`;
  return `${counted(firing, "fires", "fire")}${silenced}`;
}

function Firing({ alert }: { alert: Alert }) {
  const { name, severity, summary, condition, since } = alert;
  return (
    <>
      <div className={styles.head}>
        <Badge tone={alert.silence ? "archived" : TONES[severity]}>{severity}</Badge>
        <h3>{name}</h3>
        <AlertActions alert={alert} />
      </div>
      <p>{summary}</p>
      <dl className={styles.facts}>
        <div>
          <dt>Since</dt>
          <dd>
            <Time at={since} />
          </dd>
        </div>
        <div>
          <dt>Now</dt>
          <dd>{valueOf(alert)}</dd>
        </div>
        <div>
          <dt>Condition</dt>
          <dd>
            <Condition alert={alert} />
          </dd>
        </div>
        {placesOf(condition).map(({ to, name: place }) => (
          <div key={to}>
            <dt>See</dt>
            <dd>
              <Link href={to}>{place}</Link>
            </dd>
          </div>
        ))}
      </dl>
    </>
  );
}

export function Condition({ alert }: { alert: Alert }) {
  return (
    <>
      <code>{alert.condition}</code>
      {alert.for !== "0s" && ` for ${alert.for}`}
    </>
  );
}
