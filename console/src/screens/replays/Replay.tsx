// One replay: how far it is, what became of its letters, why some were not sent, and its plan.
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "wouter";
import { get } from "../../api/client";
import type { ReplayReport } from "../../api/documents";
import { asProblem } from "../../api/problem";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice, sentence } from "../../parts/ErrorNotice";
import { Notice } from "../../parts/Notice";
import { count, counted } from "../../parts/numbers";
import { Page, Section, Waiting } from "../../parts/Page";
import { Progress } from "../../parts/Progress";
import { Time } from "../../parts/Time";
import { ReplayBadge } from "./ReplayBadge";
import { ReplayControls } from "./ReplayControls";
import { ReplayLetters } from "./ReplayLetters";
import styles from "./Replay.module.css";

export default function Replay() {
  const { id = "" } = useParams<{ id: string }>();
  const replay = useQuery({
    queryKey: ["replay", id],
    queryFn: ({ signal }) => get("/api/v1/replays/{replay_id}", { path: { replay_id: id } }, { signal }),
  });
  if (replay.data) return <Found replay={replay.data} error={replay.error} />;
  const gone = replay.error && asProblem(replay.error).status >= 400 && asProblem(replay.error).status < 500;
  return (
    <Page title="Replay">
      {gone ? (
        <EmptyState icon="replays" title="There is no such replay">
          <Link href="/replays">All replays</Link>
        </EmptyState>
      ) : replay.error ? (
        <ErrorNotice error={replay.error} retry={() => void replay.refetch()} />
      ) : (
        <Waiting lines={10} />
      )}
    </Page>
  );
}

function Found({ replay, error }: { replay: ReplayReport; error: unknown }) {
  const waits = replay.state === "running" && replay.lockedBy === null && replay.position < replay.letters;
  return (
    <Page
      title={
        <span className={styles.title}>
          {`Replay of ${counted(replay.letters, "letter")}`} <ReplayBadge state={replay.state} />
        </span>
      }
      name={`Replay of ${counted(replay.letters, "letter")}`}
      about={
        <>
          {replay.filters || "every open letter"} · <Time at={replay.createdAt} /> by {replay.actor}
        </>
      }
      actions={<ReplayControls replay={replay} />}
    >
      {Boolean(error) && <ErrorNotice error={error} />}
      {replay.reason && <Notice tone="warning" title={sentence(replay.reason)} />}
      {waits && !replay.reason && (
        <Notice tone="warning" title="It waits for a worker">
          A worker takes it within seconds, if one runs: <code>redrive run --roles worker</code>.
        </Notice>
      )}
      <div className={styles.progress}>
        <Progress label="Letters taken" done={replay.position} of={replay.letters} tone={replay.state} />
      </div>
      <Figures replay={replay} />
      <div className={styles.columns}>
        <ReplayLetters replay={replay} />
        <Plan replay={replay} />
      </div>
    </Page>
  );
}

function Figures({ replay }: { replay: ReplayReport }) {
  const figures = [
    { name: "Sent", number: replay.sent, about: "confirmed by the broker", tone: "good" },
    { name: "Resolved", number: replay.results.resolved ?? 0, about: "of those, consumed", tone: "good" },
    {
      name: "Came back",
      number: (replay.results.returned ?? 0) + (replay.results.failed ?? 0),
      about: "of those, failed again",
      tone: "bad",
    },
    { name: "Refused", number: replay.refused, about: "certainly in no queue", tone: "bad" },
    { name: "In doubt", number: replay.inDoubt + replay.sending, about: "no confirm yet", tone: "unsure" },
    { name: "Left out", number: replay.skipped, about: "outstanding, doubtful or gone", tone: "unsure" },
    { name: "To go", number: replay.left, about: "not taken yet", tone: "" },
  ];
  return (
    <dl className={styles.figures}>
      {figures.map(({ name, number, about, tone }) => (
        <div key={name} className={number > 0 ? styles[tone] : ""}>
          <dt>{name}</dt>
          <dd>
            <b>{count(number)}</b>
            <span>{about}</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Plan({ replay }: { replay: ReplayReport }) {
  const pace = replay.rate ? `at most ${count(replay.rate)} a second` : `${replay.pause} s between batches`;
  const lines: [string, React.ReactNode][] = [
    ["Letters", replay.filters || "every open letter"],
    ["To", replay.destination ?? "where they failed"],
    ["Batches", `${counted(replay.batchSize, "letter")} each, ${pace}`],
    ["Doubtful letters", replay.doubtful ? "go too" : "are left out"],
    ["Order", replay.orderedBy ? `kept by ${replay.orderedBy}` : "oldest first"],
    ["Full queues", replay.dropOldest ? "may drop their oldest messages" : "pause it"],
    ["Run by", replay.lockedBy ?? "nobody now"],
    ["Last change", <Time at={replay.updatedAt} />],
    ["Id", <code>{replay.id}</code>],
  ];
  return (
    <Section title="Plan">
      <dl className={styles.plan}>
        {lines.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </Section>
  );
}
