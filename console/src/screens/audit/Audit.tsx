// Who did what, when, from where, and how it was answered.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { get } from "../../api/client";
import type { AuditEntry } from "../../api/documents";
import { Button } from "../../parts/Button";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { inputClass } from "../../parts/Field";
import { FilterBar } from "../../parts/FilterBar";
import { Page, Waiting } from "../../parts/Page";
import { Badge } from "../../parts/StateBadge";
import { Table, type Column } from "../../parts/Table";
import { Time } from "../../parts/Time";
import { useUrlState } from "../../parts/useUrlState";
import styles from "./Audit.module.css";
import { Detail } from "./Detail";

const PAGE = 100;
const PATIENCE = 350;
const FIELDS = [
  { name: "actor", label: "Who", hint: "user:maja, or token:*" },
  { name: "action", label: "Action", hint: "letters.*" },
  { name: "startDate", label: "From", hint: "2026-02-11, or 2h" },
  { name: "endDate", label: "Until", hint: "2026-02-11, or 10m" },
] as const;
type Name = (typeof FIELDS)[number]["name"];
type Wanted = Partial<Record<Name, string>>;

const KINDS = ["letters", "groups", "replays", "breakers", "policies", "alerts", "tokens", "users", "session"];

export default function Audit() {
  const url = useUrlState();
  const { set } = url;
  const wanted: Wanted = Object.fromEntries(
    FIELDS.map(({ name }) => [name, url.one(name)]).filter(([, value]) => value !== ""),
  );
  const [typed, setTyped] = useState<Wanted>(wanted);
  useEffect(() => {
    const timer = window.setTimeout(
      () => set(Object.fromEntries(FIELDS.map(({ name }) => [name, typed[name]?.trim() || null])), { replace: true }),
      PATIENCE,
    );
    return () => window.clearTimeout(timer);
  }, [typed, set]);
  const pages = useInfiniteQuery({
    queryKey: ["audit", JSON.stringify(wanted)],
    queryFn: ({ pageParam, signal }) =>
      get("/api/v1/audit", { query: { ...wanted, limit: PAGE, ...(pageParam ? { after: pageParam } : {}) } }, { signal }),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next,
    placeholderData: (before) => before,
    retry: false,
  });
  const entries = pages.data?.pages.flatMap(({ items }) => items) ?? [];
  const narrowed = Object.keys(wanted).length > 0;
  return (
    <Page title="Audit" about="Every change by the API, and what commands change beside letters, before it begins and again with its outcome.">
      <FilterBar>
        {FIELDS.map(({ name, label, hint }) => (
          <label key={name} className={styles.filter}>
            <span>{label}</span>
            <input
              className={inputClass}
              placeholder={hint}
              spellCheck={false}
              autoCapitalize="none"
              list={name === "action" ? "audit-kinds" : undefined}
              value={typed[name] ?? ""}
              onChange={(event) => setTyped({ ...typed, [name]: event.target.value })}
            />
          </label>
        ))}
        <datalist id="audit-kinds">
          {KINDS.map((kind) => (
            <option key={kind} value={`${kind}.*`} />
          ))}
        </datalist>
      </FilterBar>
      {pages.error && <ErrorNotice error={pages.error} />}
      {pages.isPending && !pages.error && <Waiting lines={10} />}
      {pages.data && entries.length === 0 && (
        <EmptyState icon="audit" title={narrowed ? "No entry matches" : "Nobody has changed anything yet"}>
          {narrowed ? (
            <Button onClick={() => setTyped({})}>Clear the filters</Button>
          ) : (
            <p>Replays, edits, decisions, policies and logins stand here, with who did them.</p>
          )}
        </EmptyState>
      )}
      {entries.length > 0 && (
        <Table caption="Entries of the audit log" columns={COLUMNS} rows={entries} keyOf={({ id }) => String(id)} />
      )}
      {pages.hasNextPage && (
        <div className={styles.more}>
          <Button icon="down" busy={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
            Show older entries
          </Button>
        </div>
      )}
    </Page>
  );
}

const COLUMNS: readonly Column<AuditEntry>[] = [
  { head: "When", cell: ({ at }) => <Time at={at} /> },
  {
    head: "Who",
    cell: ({ actor, role, address }) => (
      <span className={styles.who}>
        <b>{actor}</b>
        <small>{[role ?? "no role", address].filter(Boolean).join(", ")}</small>
      </span>
    ),
  },
  { head: "Action", cell: ({ action }) => <code className={styles.action}>{action}</code> },
  { head: "What", grows: true, cell: ({ detail }) => <Detail detail={detail} /> },
  { head: "Outcome", cell: ({ outcome }) => <Outcome outcome={outcome} /> },
];

function Outcome({ outcome }: { outcome: number | null }) {
  if (outcome === null) return <Badge tone="manual">did not end</Badge>;
  if (outcome < 400) return <Badge tone="resolved">done</Badge>;
  return <Badge tone="failed">{`refused, ${outcome}`}</Badge>;
}
