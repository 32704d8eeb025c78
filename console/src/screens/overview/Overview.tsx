// The start screen: how many letters are where, how they come and go, and whether all is well.
import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import { openLetters, type Stats } from "../../api/documents";
import { useLedger } from "../../live/ledger";
import { Bars } from "../../parts/Bars";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { counted } from "../../parts/numbers";
import { Page, Section, Waiting } from "../../parts/Page";
import { Breakers } from "./Breakers";
import { FiringAlerts } from "./FiringAlerts";
import { LargestGroups } from "./LargestGroups";
import { NothingOpen } from "./NothingOpen";
import styles from "./Overview.module.css";
import { QuietAlerts } from "./QuietAlerts";
import { Rates } from "./Rates";
import { ReplaysUnderWay } from "./ReplaysUnderWay";
import { StateTiles } from "./StateTiles";
import { System, Trouble } from "./System";
import { TimeInDlq } from "./TimeInDlq";

const SHOWN = 8;

export default function Overview() {
  const stats = useQuery({
    queryKey: ["stats"],
    queryFn: ({ signal }) => get("/api/v1/stats", {}, { signal }),
  });
  // The live ledger is ahead of what was asked for.
  const states = useLedger()?.states ?? stats.data?.states ?? null;
  const found = stats.data;
  return (
    <Page title="Overview" about={states ? summary(openLetters(states)) : "\u00a0"} actions={<System />}>
      <FiringAlerts />
      <Trouble />
      <QuietAlerts />
      {stats.error && <ErrorNotice error={stats.error} retry={() => void stats.refetch()} />}
      <StateTiles states={states} />
      <div className={styles.grid}>
        <div className={styles.wide}>
          <Rates />
        </div>
        <div className={styles.narrow}>
          <TimeInDlq stats={found} />
        </div>
        <div className={styles.third}>
          <LargestGroups groups={found?.groups} />
        </div>
        <div className={styles.third}>
          <Section title="Error types" flush>
            {found ? <ErrorTypes stats={found} /> : <Waiting lines={5} />}
          </Section>
        </div>
        <div className={styles.third}>
          <Section title="Queues" flush>
            {found ? <Queues stats={found} /> : <Waiting lines={5} />}
          </Section>
        </div>
        <div className={styles.half}>
          <ReplaysUnderWay />
        </div>
        <div className={styles.half}>
          <Breakers />
        </div>
      </div>
    </Page>
  );
}

function summary(open: number): string {
  return open === 0 ? "No letter waits for anybody." : `${counted(open, "open letter")}.`;
}

function ErrorTypes({ stats }: { stats: Stats }) {
  if (stats.errorTypes.length === 0) return <NothingOpen />;
  return (
    <Bars
      label="Open letters by error type"
      bars={stats.errorTypes.slice(0, SHOWN).map(({ name, letters }) => ({
        key: name ?? "",
        name: name ?? "unknown",
        number: letters,
        to: lettersBy("errorType", name),
      }))}
    />
  );
}

function Queues({ stats }: { stats: Stats }) {
  if (stats.queues.length === 0) return <NothingOpen />;
  return (
    <Bars
      label="Open letters by queue where they failed"
      bars={stats.queues.slice(0, SHOWN).map(({ name, letters }) => ({
        key: name ?? "",
        name: name ?? "unknown",
        number: letters,
        to: lettersBy("queue", name),
      }))}
    />
  );
}

function lettersBy(field: "errorType" | "queue", name: string | null): string {
  const query = new URLSearchParams(name === null ? [] : [[field, name]]);
  for (const state of ["pending", "processing", "manual", "failed"]) query.append("status", state);
  return `/letters?${query}`;
}
