// Arrivals and resolutions over the last hour to 30 days; the range is in the address.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../../api/client";
import type { Span } from "../../api/documents";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { count, counted } from "../../parts/numbers";
import { Section, Waiting } from "../../parts/Page";
import { Segments } from "../../parts/Segments";
import { useUrlState } from "../../parts/useUrlState";
import { useShortcut } from "../../shortcuts/shortcuts";
import { RatesChart, type Buckets } from "./RatesChart";
import styles from "./Rates.module.css";

const SPANS = [
  { value: "1h", text: "1h", name: "Last hour" },
  { value: "6h", text: "6h", name: "Last 6 hours" },
  { value: "24h", text: "24h", name: "Last 24 hours" },
  { value: "7d", text: "7d", name: "Last 7 days" },
  { value: "30d", text: "30d", name: "Last 30 days" },
] as const satisfies readonly { value: Span; text: string; name: string }[];

const EVERY = 60_000;

function useSpan(): [Span, (span: Span) => void] {
  const url = useUrlState();
  const given = SPANS.find(({ value }) => value === url.one("range"))?.value;
  return [given ?? "24h", (span) => url.set({ range: span === "24h" ? null : span }, { replace: true })];
}

export function Rates() {
  const [span, setSpan] = useSpan();
  const [pointed, setPointed] = useState<number | null>(null);
  const series = useQuery({
    queryKey: ["stats", "series", span],
    queryFn: ({ signal }) => get("/api/v1/stats/series", { query: { span } }, { signal }),
    placeholderData: keepPreviousData,
    refetchInterval: EVERY,
  });
  const next = SPANS[(SPANS.findIndex(({ value }) => value === span) + 1) % SPANS.length]!.value;
  useShortcut("r", "Next range", () => setSpan(next));
  const found: Buckets | undefined = series.data && { ...series.data, resolutions: series.data.resolutions ?? [] };
  return (
    <Section
      title="Arrivals and resolutions"
      actions={<Segments label="Range" options={SPANS} chosen={span} onChange={setSpan} />}
    >
      {series.error && <ErrorNotice error={series.error} retry={() => void series.refetch()} />}
      {found ? (
        <>
          <Legend found={found} span={span} pointed={pointed} />
          <RatesChart found={found} onPoint={setPointed} name={inWords(found, span)} />
        </>
      ) : (
        !series.error && <Waiting lines={8} />
      )}
    </Section>
  );
}

function Legend({ found, span, pointed }: { found: Buckets; span: Span; pointed: number | null }) {
  const at = pointed === null ? null : new Date(Date.parse(found.start) + pointed * found.seconds * 1000);
  const arrived = pointed === null ? sum(found.arrivals) : (found.arrivals[pointed] ?? 0);
  const resolved = pointed === null ? sum(found.resolutions) : (found.resolutions[pointed] ?? 0);
  const long = found.seconds * (pointed === null ? found.arrivals.length : 1);
  return (
    <p className={styles.legend}>
      <span className={styles.arrived}>
        <b>{count(arrived)}</b> arrived <small>{rate(arrived, long)}</small>
      </span>
      <span className={styles.resolved}>
        <b>{count(resolved)}</b> resolved <small>{rate(resolved, long)}</small>
      </span>
      <span className={styles.when}>{at ? at.toLocaleString([], WHEN) : nameOf(span)}</span>
    </p>
  );
}

const WHEN: Intl.DateTimeFormatOptions = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };

function nameOf(span: Span): string {
  return SPANS.find(({ value }) => value === span)!.name;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}

/** As the unit in which it is a number that can be read: a second, minute, hour or day. */
function rate(number: number, seconds: number): string {
  for (const [unit, per] of [["s", 1], ["min", 60], ["h", 3600]] as const) {
    const each = (number / seconds) * per;
    if (each >= 1) return `${each < 10 ? each.toFixed(1) : count(Math.round(each))}/${unit}`;
  }
  return `${((number / seconds) * 86_400).toFixed(number ? 1 : 0)}/d`;
}

function inWords(found: Buckets, span: Span): string {
  const most = Math.max(...found.arrivals);
  return `${nameOf(span)}: ${counted(sum(found.arrivals), "letter")} arrived, at most ${count(most)} in ${
    found.seconds / 60
  } minutes; ${count(sum(found.resolutions))} resolved`;
}
