import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get } from "../../api/client";
import type { Letter } from "../../api/documents";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { counted } from "../../parts/numbers";
import { Section, Waiting } from "../../parts/Page";
import { StateBadge } from "../../parts/StateBadge";
import { Time } from "../../parts/Time";
import styles from "./Siblings.module.css";

/** Letters that failed for the same reason in the same place, and what people noted of them. */
export function Siblings({ letter }: { letter: Letter }) {
  const { fingerprint } = letter;
  const group = useQuery({
    queryKey: ["groups", fingerprint],
    queryFn: ({ signal }) => get("/api/v1/groups/{fingerprint}", { path: { fingerprint } }, { signal }),
  });
  const others = group.data?.newest.filter(({ id }) => id !== letter.id).slice(0, 6) ?? [];
  const note = group.data?.note;
  const list = `/letters?group=${fingerprint}`;
  return (
    <Section title="Group" actions={group.data && <Link href={list}>{counted(group.data.letters, "letter")}</Link>}>
      {group.error && <ErrorNotice error={group.error} retry={() => void group.refetch()} />}
      {group.isPending && <Waiting lines={3} />}
      {note && (note.note || note.assignee) && (
        <div className={styles.note}>
          {note.note && <p>{note.note}</p>}
          <p className={styles.by}>
            {note.assignee && `${note.assignee} looks after it. `}
            Noted by {note.updatedBy} <Time at={note.updatedAt} />
          </p>
        </div>
      )}
      {group.data && others.length === 0 && <p className={styles.by}>No other letter failed like this.</p>}
      <ul className={styles.others}>
        {others.map((other) => (
          <li key={other.id}>
            <StateBadge state={other.status} />
            <Link href={`/letters/${other.id}?group=${fingerprint}`}>{other.messageId}</Link>
            <span className={styles.by}>
              <Time at={other.lastFailedAt} />
            </span>
          </li>
        ))}
      </ul>
    </Section>
  );
}
