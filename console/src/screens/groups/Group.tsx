// One group: how it developed, its newest letters, what people noted, and what can be done with all.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useParams } from "wouter";
import { get } from "../../api/client";
import { openLetters, STATES, wordOf, type GroupDocument, type LetterSummary } from "../../api/documents";
import { useMay } from "../../api/session";
import { Button } from "../../parts/Button";
import { CopyButton } from "../../parts/CopyButton";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { count, counted } from "../../parts/numbers";
import { Page, Section, Waiting } from "../../parts/Page";
import { StateBadge } from "../../parts/StateBadge";
import { Table, type Column } from "../../parts/Table";
import { Time } from "../../parts/Time";
import { asProblem } from "../../api/problem";
import { useShortcut } from "../../shortcuts/shortcuts";
import { GroupActions, useGroupAction } from "./GroupActions";
import styles from "./Group.module.css";
import { GroupNote } from "./GroupNote";
import { GroupTrend } from "./GroupTrend";

export default function Group() {
  const { fingerprint = "" } = useParams<{ fingerprint: string }>();
  const group = useQuery({
    queryKey: ["groups", fingerprint],
    queryFn: ({ signal }) => get("/api/v1/groups/{fingerprint}", { path: { fingerprint } }, { signal }),
  });
  if (group.data) return <Found group={group.data} error={group.error} />;
  const gone = group.error && asProblem(group.error).kind === "not-found";
  return (
    <Page title="Group">
      {gone ? (
        <EmptyState icon="groups" title="There is no such group">
          <p>
            Its letters may have been deleted by retention. <Link href="/groups">All groups</Link>
          </p>
        </EmptyState>
      ) : group.error ? (
        <ErrorNotice error={group.error} retry={() => void group.refetch()} />
      ) : (
        <Waiting lines={10} />
      )}
    </Page>
  );
}

function Found({ group, error }: { group: GroupDocument; error: unknown }) {
  const operator = useMay("operator");
  const action = useGroupAction();
  const [whole, setWhole] = useState(false);
  const open = openLetters(group.counts);
  const all = `/letters?group=${group.fingerprint}`;
  useShortcut("r", "Replay the group", () => action.begin("replay", group), operator && open > 0);
  useShortcut("e", "Edit the group", () => action.begin("edit", group), operator && open > 0);
  return (
    <Page
      title={group.errorType}
      name={`${group.errorType} · Group`}
      about={
        <button
          type="button"
          className={`${styles.reason} ${whole ? styles.whole : ""}`}
          aria-expanded={whole}
          onClick={() => setWhole(!whole)}
        >
          {group.reason || "no reason was given"}
        </button>
      }
      actions={
        operator && (
          <>
            <Button icon="discard" disabled={open === 0} onClick={() => action.begin("discard", group)}>
              Discard
            </Button>
            <Button icon="edit" disabled={open === 0} onClick={() => action.begin("edit", group)}>
              Edit
            </Button>
            <Button kind="main" icon="send" disabled={open === 0} onClick={() => action.begin("replay", group)}>
              Replay
            </Button>
          </>
        )
      }
    >
      {Boolean(error) && <ErrorNotice error={error} />}
      <dl className={styles.facts}>
        <div>
          <dt>Open</dt>
          <dd>{counted(open, "letter")}</dd>
        </div>
        <div>
          <dt>Queue</dt>
          <dd>
            {group.queue ? <Link href={`/groups?queue=${encodeURIComponent(group.queue)}`}>{group.queue}</Link> : "unknown"}
          </dd>
        </div>
        <div>
          <dt>First seen</dt>
          <dd>
            <Time at={group.firstSeenAt} />
          </dd>
        </div>
        <div>
          <dt>Last seen</dt>
          <dd>
            <Time at={group.lastSeenAt} />
          </dd>
        </div>
        <div>
          <dt>Fingerprint</dt>
          <dd className={styles.fingerprint}>
            <code>{group.fingerprint}</code>
            <CopyButton what="fingerprint" text={group.fingerprint} />
          </dd>
        </div>
      </dl>
      <ul className={styles.states} aria-label="Letters by state">
        {STATES.filter((state) => group.counts[state] > 0).map((state) => (
          <li key={state}>
            <Link href={`${all}&status=${wordOf(state)}`}>
              <StateBadge state={state} /> <b>{count(group.counts[state])}</b>
            </Link>
          </li>
        ))}
      </ul>
      <div className={styles.columns}>
        <GroupTrend fingerprint={group.fingerprint} />
        <GroupNote key={group.fingerprint} group={group} />
      </div>
      <Section
        title="Newest letters"
        actions={
          <>
            <Link href={`${all}&possibleDuplicate=true`}>Possible duplicates</Link>
            <Link href={all}>{`All ${counted(group.letters, "letter")}`}</Link>
          </>
        }
        flush
      >
        <Table caption="Newest letters" columns={COLUMNS} rows={group.newest} keyOf={({ id }) => id} bare />
      </Section>
      <GroupActions action={action} />
    </Page>
  );
}

const COLUMNS: readonly Column<LetterSummary>[] = [
  { head: "State", cell: ({ status }) => <StateBadge state={status} /> },
  {
    head: "Letter",
    grows: true,
    cell: (letter) => (
      <span>
        <Link href={`/letters/${letter.id}?group=${letter.fingerprint}`}>{letter.messageId}</Link>
        {letter.possibleDuplicate && <em className={styles.copy}> possible duplicate</em>}
      </span>
    ),
  },
  { head: "Routing key", cell: ({ origin }) => <code>{origin.routingKey}</code> },
  { head: "Failed", cell: ({ lastFailedAt }) => <Time at={lastFailedAt} /> },
];
