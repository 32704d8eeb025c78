// The topology: a picture with what its queues hold now, and what differs from the settings.
import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import type { Finding, Topology } from "../../api/documents";
import { Button } from "../../parts/Button";
import { ErrorNotice, sentence } from "../../parts/ErrorNotice";
import { Notice } from "../../parts/Notice";
import { count, counted } from "../../parts/numbers";
import { Page, Section, Waiting } from "../../parts/Page";
import { Badge, type Tone } from "../../parts/StateBadge";
import { Table, type Column } from "../../parts/Table";
import { lasting } from "../../parts/Time";
import { flowOf } from "./flow";
import { Picture } from "./Picture";
import styles from "./TopologyScreen.module.css";

const EVERY = 5000;

export default function TopologyScreen() {
  const topology = useQuery({
    queryKey: ["topology"],
    queryFn: ({ signal }) => get("/api/v1/topology", {}, { signal }),
    refetchInterval: EVERY,
  });
  const found = topology.data;
  return (
    <Page
      title="Topology"
      about="Exchanges, tiers and queues on the broker, with what they hold now."
      actions={
        <Button icon="replays" busy={topology.isFetching && !found} onClick={() => void topology.refetch()}>
          Look again
        </Button>
      }
    >
      {topology.error && <ErrorNotice error={topology.error} retry={() => void topology.refetch()} />}
      {!found && !topology.error && <Waiting lines={10} />}
      {found && (
        <>
          <Drift topology={found} />
          <div className={styles.picture}>
            <Section title="Where messages go">
              <Picture flow={flowOf(found)} />
              <Legend />
            </Section>
          </div>
          <div className={styles.columns}>
            <Section title="Queues" flush>
              <Table caption="Queues" columns={queues(found)} rows={of(found, "queue")} keyOf={keyOf} bare />
            </Section>
            <div className={styles.stack}>
              <Section title="Exchanges" flush>
                <Table caption="Exchanges" columns={EXCHANGES} rows={of(found, "exchange")} keyOf={keyOf} bare />
              </Section>
              <Section title="Bindings" flush>
                <Table caption="Bindings" columns={BINDINGS} rows={of(found, "binding")} keyOf={keyOf} bare />
              </Section>
            </div>
          </div>
        </>
      )}
    </Page>
  );
}

function Drift({ topology }: { topology: Topology }) {
  const drifted = topology.parts.filter(({ standing }) => standing !== "same" && standing !== "unknown");
  const missing = drifted.some(({ standing }) => standing === "missing");
  return (
    <>
      {drifted.length > 0 && (
        <Notice tone="danger" title={`${counted(drifted.length, "part")} not as the settings say`}>
          <ul className={styles.drift}>
            {drifted.map((finding) => (
              <li key={keyOf(finding)}>
                <b>{nameOf(finding)}</b> {difference(finding)}
              </li>
            ))}
          </ul>
          {missing && (
            <p>
              <code>redrive topology apply</code> makes what is missing, and changes nothing that exists.
            </p>
          )}
        </Notice>
      )}
      {topology.clean && <Notice tone="good" title="Everything is as the settings say" />}
      {topology.note && <Notice tone="warning" title={sentence(topology.note)} />}
      {!topology.exact && (
        <Notice tone="warning" title="Bindings and policies are not known">
          Without the management API the broker does not tell them. Set <code>broker.management_url</code>.
        </Notice>
      )}
    </>
  );
}

function difference({ standing, differences, note }: Finding): string {
  const told = differences.map(({ what, expected, got }) => `${what} is ${said(got)}, expected ${said(expected)}`);
  const words = standing === "differs" ? told.join("; ") : standing === "left over" ? "is left over" : `is ${standing}`;
  return sentence(note ? `${words} (${note})` : words).replace(/^./, (first) => first.toLowerCase());
}

function said(value: unknown): string {
  return value === null || value === undefined ? "not set" : typeof value === "string" ? value : JSON.stringify(value);
}

function Legend() {
  return (
    <p className={styles.legend}>
      <span className={styles.line}>bound or dead-lettered by the broker</span>
      <span className={styles.dotted}>moved by the retrier</span>
      <span className={styles.broken}>drift</span>
    </p>
  );
}

function of(topology: Topology, part: Finding["part"]): Finding[] {
  return topology.parts.filter((each) => each.part === part);
}

function nameOf(finding: Finding): string {
  if (finding.part === "binding") return `Binding ${finding.exchange} → ${finding.queue} (${finding.routingKey})`;
  return `${finding.part === "queue" ? "Queue" : "Exchange"} ${finding.name}`;
}

function keyOf(finding: Finding): string {
  return [finding.part, finding.name, finding.exchange, finding.queue, finding.routingKey].join(" ");
}

const TONES: Record<Finding["standing"], Tone> = {
  same: "resolved",
  missing: "failed",
  differs: "failed",
  "left over": "manual",
  unknown: "archived",
};

const STANDING: Column<Finding> = {
  head: "Standing",
  cell: ({ standing }) => <Badge tone={TONES[standing]}>{standing === "same" ? "as it should be" : standing}</Badge>,
};

function queues(topology: Topology): readonly Column<Finding>[] {
  const counts = ({ name }: Finding) => topology.counts[name ?? ""];
  return [
    {
      head: "Queue",
      grows: true,
      cell: ({ name, arguments: given }) => (
        <span>
          <code>{name}</code>{" "}
          {typeof given?.["x-message-ttl"] === "number" && (
            <small className={styles.faint}>waits {lasting(given["x-message-ttl"])}</small>
          )}
        </span>
      ),
    },
    { head: "Ready", numeric: true, cell: (queue) => (counts(queue) ? count(counts(queue)!.ready) : "–") },
    { head: "Consumers", numeric: true, cell: (queue) => (counts(queue) ? count(counts(queue)!.consumers) : "–") },
    STANDING,
  ];
}

const EXCHANGES: readonly Column<Finding>[] = [
  { head: "Exchange", grows: true, cell: ({ name }) => <code>{name}</code> },
  { head: "Type", cell: ({ type }) => type },
  STANDING,
];

const BINDINGS: readonly Column<Finding>[] = [
  {
    head: "Binding",
    grows: true,
    cell: ({ exchange, queue }) => (
      <span>
        <code>{exchange}</code> → <code>{queue}</code>
      </span>
    ),
  },
  { head: "Key", cell: ({ routingKey }) => <code>{routingKey}</code> },
  STANDING,
];
