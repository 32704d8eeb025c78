// The letters of a replay that need somebody: refused, come back, in doubt, left out. Others on demand.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { get } from "../../api/client";
import type { ReplayLetter, ReplayReport } from "../../api/documents";
import { Button } from "../../parts/Button";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { count } from "../../parts/numbers";
import { Section, Waiting } from "../../parts/Page";
import { Segments } from "../../parts/Segments";
import { Badge, StateBadge, type Tone } from "../../parts/StateBadge";
import { Table, type Column } from "../../parts/Table";
import { Time } from "../../parts/Time";
import { useUrlState } from "../../parts/useUrlState";
import styles from "./Replay.module.css";

const PAGE = 50;
type Which = "failures" | "sent";

const WHICH = [
  { value: "failures", text: "Failures" },
  { value: "sent", text: "Sent" },
] as const satisfies readonly { value: Which; text: string }[];

export function ReplayLetters({ replay }: { replay: ReplayReport }) {
  const url = useUrlState();
  const which: Which = url.one("letters") === "sent" ? "sent" : "failures";
  const pages = useInfiniteQuery({
    queryKey: ["replay", replay.id, "letters", which],
    queryFn: ({ pageParam, signal }) =>
      get(
        "/api/v1/replays/{replay_id}/letters",
        {
          path: { replay_id: replay.id },
          query: {
            limit: PAGE,
            leftOut: which === "failures",
            ...(which === "sent" ? { result: ["sent", "resolved"] } : {}),
            ...(pageParam ? { after: pageParam } : {}),
          },
        },
        { signal },
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next,
  });
  const letters = pages.data?.pages.flatMap(({ items }) => items) ?? [];
  // A page looks at some thousand letters of the replay, and not each of them is one that is wanted.
  const [wanted, setWanted] = useState(PAGE);
  const { hasNextPage, isFetching, isError, fetchNextPage } = pages;
  const looksOn = hasNextPage && letters.length < Math.min(wanted, numberOf(replay, which));
  useEffect(() => {
    if (looksOn && !isFetching && !isError) void fetchNextPage();
  }, [looksOn, isFetching, isError, fetchNextPage]);
  return (
    <Section
      title="Letters"
      flush
      actions={
        <Segments
          label="Which letters"
          options={WHICH}
          chosen={which}
          onChange={(chosen) => url.set({ letters: chosen === "failures" ? null : chosen }, { replace: true })}
        />
      }
    >
      {which === "failures" && replay.refusals.length > 0 && (
        <ul className={styles.reasons} aria-label="Why letters were refused">
          {replay.refusals.map(({ reason, letters: number }) => (
            <li key={reason}>
              <b>{count(number)}</b> refused: {reason}
            </li>
          ))}
        </ul>
      )}
      {pages.error && <ErrorNotice error={pages.error} retry={() => void pages.refetch()} />}
      {(pages.isPending || (looksOn && letters.length === 0)) && !isError && <Waiting lines={5} />}
      {pages.data && letters.length === 0 && !looksOn && (
        <EmptyState
          icon={which === "failures" ? "check" : "replays"}
          title={which === "failures" ? "No letter of it has failed" : "No letter of it was sent"}
        />
      )}
      {letters.length > 0 && (
        <Table caption="Letters of the replay" columns={COLUMNS} rows={letters} keyOf={({ id }) => id} bare />
      )}
      {hasNextPage && letters.length > 0 && letters.length < numberOf(replay, which) && (
        <div className={styles.more}>
          <Button icon="down" busy={pages.isFetchingNextPage} onClick={() => setWanted(letters.length + PAGE)}>
            Show more letters
          </Button>
        </div>
      )}
    </Section>
  );
}

/** How many there are, by what the replay counts. */
function numberOf({ results, skipped }: ReplayReport, which: Which): number {
  const sum = (...names: string[]) => names.reduce((all, name) => all + (results[name] ?? 0), 0);
  return which === "sent" ? sum("sent", "resolved") : sum("refused", "in_doubt", "returned", "failed") + skipped;
}

const TONES: Record<NonNullable<ReplayLetter["result"]>, Tone> = {
  sending: "processing",
  sent: "processing",
  in_doubt: "manual",
  refused: "failed",
  returned: "failed",
  failed: "failed",
  resolved: "resolved",
};

const COLUMNS: readonly Column<ReplayLetter>[] = [
  {
    head: "Result",
    cell: ({ result }) =>
      result ? <Badge tone={TONES[result]}>{result.replace("_", " ")}</Badge> : <Badge tone="archived">left out</Badge>,
  },
  {
    head: "Letter",
    grows: true,
    cell: (letter) =>
      letter.status ? (
        <span>
          <Link href={`/letters/${letter.id}`}>{letter.errorType}</Link> {letter.reason || letter.errorReason}
        </span>
      ) : (
        "deleted since"
      ),
  },
  { head: "Now", cell: ({ status }) => (status ? <StateBadge state={status} /> : "–") },
  { head: "Sent", cell: ({ at }) => <Time at={at} /> },
];
