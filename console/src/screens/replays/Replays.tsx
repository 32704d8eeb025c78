// Replays, newest first: how far each is; paused, resumed, cancelled.
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useLocation } from "wouter";
import { get } from "../../api/client";
import type { Replay } from "../../api/documents";
import { useMay } from "../../api/session";
import { Button } from "../../parts/Button";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Choices, FilterBar } from "../../parts/FilterBar";
import { Page, Waiting } from "../../parts/Page";
import { Progress } from "../../parts/Progress";
import { Time } from "../../parts/Time";
import { useUrlState } from "../../parts/useUrlState";
import { useShortcut } from "../../shortcuts/shortcuts";
import { ReplayBadge } from "./ReplayBadge";
import { ReplayControls } from "./ReplayControls";
import styles from "./Replays.module.css";

const REPLAY_STATES = ["running", "paused", "done", "cancelled"] as const satisfies readonly Replay["state"][];
const PAGE = 50;

export default function Replays() {
  const [, go] = useLocation();
  const url = useUrlState();
  const operator = useMay("operator");
  const pages = useInfiniteQuery({
    queryKey: ["replays", "list"],
    queryFn: ({ pageParam, signal }) =>
      get("/api/v1/replays", { query: { limit: PAGE, ...(pageParam ? { after: pageParam } : {}) } }, { signal }),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next,
  });
  const chosen = REPLAY_STATES.filter((state) => url.all("state").includes(state));
  const all = pages.data?.pages.flatMap(({ items }) => items) ?? [];
  const shown = all.filter(({ state }) => chosen.length === 0 || chosen.includes(state));
  useShortcut("n", "New replay", () => go("/replays/new"), operator);
  return (
    <Page
      title="Replays"
      about="Letters that are sent again, as jobs that survive every crash."
      actions={
        operator && (
          <Button kind="main" icon="plus" onClick={() => go("/replays/new")}>
            New replay
          </Button>
        )
      }
    >
      <FilterBar>
        <Choices
          label="States"
          options={REPLAY_STATES.map((state) => ({ value: state, text: state }))}
          chosen={chosen}
          onChange={(state) => url.set({ state })}
        />
      </FilterBar>
      {pages.error && <ErrorNotice error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Waiting lines={8} />}
      {pages.data && shown.length === 0 && <Nothing any={all.length > 0} clear={() => url.set({ state: null })} />}
      {shown.length > 0 && (
        <ul className={styles.list} aria-label="Replays">
          {shown.map((replay) => (
            <Row key={replay.id} replay={replay} />
          ))}
        </ul>
      )}
      {pages.hasNextPage && (
        <div className={styles.more}>
          <Button icon="down" busy={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
            Show older replays
          </Button>
        </div>
      )}
    </Page>
  );
}

function Row({ replay }: { replay: Replay }) {
  return (
    <li className={styles.row}>
      <div className={styles.words}>
        <Link href={`/replays/${replay.id}`} className={styles.title}>
          {replay.filters || "every open letter"}
        </Link>
        <span className={styles.faint}>
          <Time at={replay.createdAt} /> by {replay.actor}
          {replay.destination && ` to ${replay.destination}`}
        </span>
        {replay.reason && <span className={styles.reason}>{replay.reason}</span>}
      </div>
      <ReplayBadge state={replay.state} />
      <Progress label={replay.filters} done={replay.position} of={replay.letters} tone={replay.state} />
      <ReplayControls replay={replay} small />
    </li>
  );
}

function Nothing({ any, clear }: { any: boolean; clear: () => void }) {
  if (any) {
    return (
      <EmptyState icon="replays" title="No replay is in such a state">
        <Button onClick={clear}>Show all replays</Button>
      </EmptyState>
    );
  }
  return (
    <EmptyState icon="replays" title="Nothing was replayed yet">
      <p>
        Find what failed under <Link href="/groups">Groups</Link>, fix the cause, and send the letters again.
      </p>
    </EmptyState>
  );
}
