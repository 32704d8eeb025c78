// Letters by failure: what fails most, since when, who looks after it; replayed or discarded whole.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useRef } from "react";
import { get } from "../../api/client";
import type { Span } from "../../api/documents";
import { Button } from "../../parts/Button";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Chip, FilterBar, SearchInput } from "../../parts/FilterBar";
import { counted } from "../../parts/numbers";
import { Page, Waiting } from "../../parts/Page";
import { Segments } from "../../parts/Segments";
import { useUrlState } from "../../parts/useUrlState";
import { useShortcut } from "../../shortcuts/shortcuts";
import { GroupActions, useGroupAction } from "./GroupActions";
import { arranged, ORDERS, type Order, type Shown } from "./arranged";
import { GroupRow } from "./GroupRow";
import styles from "./Groups.module.css";
import { useTrends } from "./useTrends";

const PAGE = 500;
const SHOWN = 50;

export default function Groups() {
  const url = useUrlState();
  const search = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const action = useGroupAction();
  const order = (ORDERS.find(({ value }) => value === url.one("order"))?.value ?? "open") as Order;
  const shown: Shown = url.one("show") === "all" ? "all" : "open";
  const pages = useInfiniteQuery({
    queryKey: ["groups", "list"],
    queryFn: ({ pageParam, signal }) =>
      get("/api/v1/groups", { query: { limit: PAGE, ...(pageParam ? { after: pageParam } : {}) } }, { signal }),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next,
  });
  const all = useMemo(() => pages.data?.pages.flatMap(({ items }) => items) ?? [], [pages.data]);
  const filters = { search: url.one("search"), queue: url.one("queue"), assignee: url.one("assignee"), shown, order };
  const found = arranged(all, filters);
  const limit = Math.max(SHOWN, Number(url.one("rows")) || 0);
  const rows = found.slice(0, limit);
  const span: Span = url.one("range") === "7d" ? "7d" : url.one("range") === "30d" ? "30d" : "24h";
  const trends = useTrends(rows.slice(0, 100).map(({ fingerprint }) => fingerprint), span);
  const narrowed = filters.search !== "" || filters.queue !== "" || filters.assignee !== "";
  useShortcut("/", "Search groups", () => search.current?.focus());
  useShortcut("j", "Next group", () => step(list.current, 1));
  useShortcut("k", "Previous group", () => step(list.current, -1));
  return (
    <Page
      title="Groups"
      about="Letters that failed for the same reason in the same place."
      actions={<Segments label="Trend" options={SPANS} chosen={span} onChange={(range) => url.set({ range })} />}
    >
      <FilterBar>
        <SearchInput
          ref={search}
          label="Search groups"
          placeholder="Error, reason, queue or note"
          value={filters.search}
          onChange={(text) => url.set({ search: text }, { replace: true })}
        />
        <Segments
          label="Which groups"
          options={WHICH}
          chosen={shown}
          onChange={(which) => url.set({ show: which === "open" ? null : which })}
        />
        <Segments
          label="Order"
          options={ORDERS}
          chosen={order}
          onChange={(by) => url.set({ order: by === "open" ? null : by })}
        />
        {filters.queue && <Chip name="queue" value={filters.queue} onRemove={() => url.set({ queue: null })} />}
        {filters.assignee && (
          <Chip name="assignee" value={filters.assignee} onRemove={() => url.set({ assignee: null })} />
        )}
        <span className={styles.count} role="status">
          {pages.data && counted(found.length, "group")}
        </span>
      </FilterBar>
      {pages.error && <ErrorNotice error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Waiting lines={10} />}
      {pages.data && found.length === 0 && (
        <Nothing
          narrowed={narrowed}
          any={all.length > 0}
          clear={() => url.set({ search: null, queue: null, assignee: null })}
          showAll={() => url.set({ show: "all" })}
        />
      )}
      {rows.length > 0 && (
        <ul className={styles.list} ref={list} aria-label="Groups">
          {rows.map((group) => (
            <GroupRow
              key={group.fingerprint}
              group={group}
              trend={trends[group.fingerprint]}
              span={span}
              onAct={(verb) => action.begin(verb, group)}
            />
          ))}
        </ul>
      )}
      {(found.length > limit || pages.hasNextPage) && (
        <div className={styles.more}>
          <Button
            icon="down"
            busy={pages.isFetchingNextPage}
            onClick={() => {
              url.set({ rows: String(limit + SHOWN) }, { replace: true });
              if (found.length <= limit) void pages.fetchNextPage();
            }}
          >
            Show more groups
          </Button>
        </div>
      )}
      <GroupActions action={action} />
    </Page>
  );
}

const SPANS = [
  { value: "24h", text: "24h", name: "Trend of the last 24 hours" },
  { value: "7d", text: "7d", name: "Trend of the last 7 days" },
  { value: "30d", text: "30d", name: "Trend of the last 30 days" },
] as const;

const WHICH = [
  { value: "open", text: "Open" },
  { value: "all", text: "All" },
] as const satisfies readonly { value: Shown; text: string }[];

/** The focus goes to the group below or above. */
function step(list: HTMLElement | null, by: number): void {
  const links = [...(list?.querySelectorAll<HTMLElement>("a[data-group]") ?? [])];
  const now = links.findIndex((link) => link.closest("li")?.contains(document.activeElement));
  links[Math.min(links.length - 1, Math.max(0, now + by))]?.focus();
}

function Nothing(props: { narrowed: boolean; any: boolean; clear: () => void; showAll: () => void }) {
  if (props.narrowed) {
    return (
      <EmptyState icon="groups" title="No group matches">
        <Button onClick={props.clear}>Clear the filters</Button>
      </EmptyState>
    );
  }
  if (props.any) {
    return (
      <EmptyState icon="check" title="Nothing is open">
        <p>Every letter was resolved or put away.</p>
        <Button onClick={props.showAll}>Show all groups</Button>
      </EmptyState>
    );
  }
  return (
    <EmptyState icon="groups" title="There are no groups">
      <p>What ends in the dead letter queue is grouped here by itself, as long as a collector runs.</p>
    </EmptyState>
  );
}
