// How groups developed: one request for all that are shown. Not a matter of seconds, and counted group
// by group: so it is asked for now and then, and not with every live event.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import type { Span } from "../../api/documents";
import { counted } from "../../parts/numbers";

const EVERY = 20_000;

export function useTrends(groups: readonly string[], span: Span): Readonly<Record<string, readonly number[]>> {
  const sorted = [...groups].sort();
  const { data } = useQuery({
    queryKey: ["trends", span, sorted.join()],
    queryFn: ({ signal }) => get("/api/v1/stats/trends", { query: { span, group: sorted } }, { signal }),
    enabled: sorted.length > 0,
    placeholderData: keepPreviousData,
    refetchInterval: EVERY,
  });
  return Object.fromEntries(data?.items.map(({ group, arrivals }) => [group, arrivals]) ?? []);
}

const WORDS: Record<Span, string> = {
  "1h": "hour",
  "6h": "6 hours",
  "24h": "24 hours",
  "7d": "7 days",
  "30d": "30 days",
};

export function trendName(counts: readonly number[], span: Span): string {
  return `${counted(counts.reduce((sum, each) => sum + each, 0), "letter")} in the last ${WORDS[span]}`;
}
