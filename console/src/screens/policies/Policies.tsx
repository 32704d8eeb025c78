// How often messages are retried, by routing key. Those of the database change here, at once.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../../api/client";
import type { Policy } from "../../api/documents";
import { useMay } from "../../api/session";
import { Button } from "../../parts/Button";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { FilterBar, SearchInput } from "../../parts/FilterBar";
import { Page, Waiting } from "../../parts/Page";
import { Badge, type Tone } from "../../parts/StateBadge";
import { RowActions, Table, type Column } from "../../parts/Table";
import { useUrlState } from "../../parts/useUrlState";
import { useShortcut } from "../../shortcuts/shortcuts";
import { DeletePolicy } from "./DeletePolicy";
import { MaxRetries } from "./MaxRetries";
import styles from "./Policies.module.css";
import { PolicyDialog } from "./PolicyDialog";

type Open = { dialog: "set"; policy: Policy | null } | { dialog: "delete"; policy: Policy };

export default function Policies() {
  const admin = useMay("admin");
  const url = useUrlState();
  const [open, setOpen] = useState<Open | null>(null);
  const policies = useQuery({
    queryKey: ["policies"],
    queryFn: ({ signal }) => get("/api/v1/policies", {}, { signal }),
  });
  const add = () => setOpen({ dialog: "set", policy: null });
  useShortcut("n", "Add a policy", add, admin);
  const search = url.one("search");
  const all = policies.data?.items ?? [];
  const shown = all.filter(({ name }) => name.toLowerCase().includes(search.toLowerCase()));
  return (
    <Page
      title="Policies"
      about="How often a message is retried before it becomes a letter, by routing key. Retriers follow within 5 seconds."
      actions={
        admin && (
          <Button kind="main" icon="plus" onClick={add}>
            Add a policy
          </Button>
        )
      }
    >
      {all.length > 0 && (
        <FilterBar>
          <SearchInput
            label="Search policies"
            placeholder="Routing key or pattern"
            value={search}
            onChange={(text) => url.set({ search: text }, { replace: true })}
          />
        </FilterBar>
      )}
      {policies.error && <ErrorNotice error={policies.error} retry={() => void policies.refetch()} />}
      {policies.isPending && <Waiting lines={6} />}
      {policies.data && all.length === 0 && (
        <EmptyState icon="policies" title="There are no policies">
          <p>
            Without one, a message that fails goes straight to the dead letter queue. A policy for <code>order.*</code> with
            3 retries has it tried three times more.
          </p>
          {admin && <Button onClick={add}>Add a policy</Button>}
        </EmptyState>
      )}
      {all.length > 0 && shown.length === 0 && (
        <EmptyState icon="policies" title="No policy matches">
          <Button onClick={() => url.set({ search: null })}>Clear the search</Button>
        </EmptyState>
      )}
      {shown.length > 0 && (
        <Table
          caption="Policies"
          columns={columns(admin, setOpen)}
          rows={shown}
          keyOf={({ source, place, name }) => `${source} ${place} ${name}`}
        />
      )}
      {open?.dialog === "set" && <PolicyDialog policy={open.policy} onClose={() => setOpen(null)} />}
      {open?.dialog === "delete" && <DeletePolicy policy={open.policy} onClose={() => setOpen(null)} />}
    </Page>
  );
}

const TONES: Record<Policy["state"], Tone> = {
  "in force": "resolved",
  shadowed: "archived",
  refused: "failed",
  ignored: "manual",
};

function columns(admin: boolean, open: (what: Open) => void): readonly Column<Policy>[] {
  const shown: Column<Policy>[] = [
    { head: "Routing key", grows: true, cell: ({ name }) => <code className={styles.name}>{name}</code> },
    {
      head: "Max retries",
      cell: (policy) =>
        admin && policy.source === "database" && policy.state === "in force" ? (
          <MaxRetries policy={policy} />
        ) : (
          <span className={styles.number}>{policy.maxRetries ?? "default"}</span>
        ),
    },
    { head: "Returns to", cell: ({ returnTo }) => `its ${returnTo}` },
    { head: "Expired ones", cell: ({ retryExpired }) => (retryExpired ? "are retried" : "are not") },
    {
      head: "Where",
      cell: ({ source, place }) => (
        <span className={styles.where}>
          {source} <small>{place}</small>
        </span>
      ),
    },
    {
      head: "State",
      cell: ({ state, reason }) => (
        <span className={styles.where}>
          <Badge tone={TONES[state]}>{state}</Badge>
          {reason && <small>{reason}</small>}
        </span>
      ),
    },
  ];
  if (!admin) return shown;
  return [
    ...shown,
    {
      head: "Change",
      cell: (policy) => (
        <RowActions>
          <Button kind="quiet" icon="edit" iconOnly onClick={() => open({ dialog: "set", policy })}>
            {policy.source === "database" ? `Change ${policy.name}` : `Override ${policy.name}`}
          </Button>
          {policy.source === "database" && (
            <Button kind="quiet" icon="discard" iconOnly onClick={() => open({ dialog: "delete", policy })}>
              {`Delete ${policy.name}`}
            </Button>
          )}
        </RowActions>
      ),
    },
  ];
}
