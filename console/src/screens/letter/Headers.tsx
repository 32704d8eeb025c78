import type { Header, Letter } from "../../api/documents";
import { CopyButton } from "../../parts/CopyButton";
import { Section } from "../../parts/Page";
import { Table, type Column } from "../../parts/Table";
import { headerText } from "./headerText";
import styles from "./Headers.module.css";
import { standingEdit } from "./useLetter";

type Row = Header & { key: string };

/** Written by the broker or by Redrive: not what the publisher said. */
export const NOT_THE_PUBLISHERS =
  /^(redrive-|x-death$|x-first-death-|x-last-death-|x-delivery-count$|x-acquired-count$)/i;
const LONG = 600;

const COLUMNS: readonly Column<Row>[] = [
  { head: "Header", cell: ({ name }) => <code className={styles.name}>{name}</code> },
  { head: "Type", cell: ({ type }) => <span className={styles.type}>{type}</span> },
  { head: "Value", grows: true, cell: (header) => <Value text={headerText(header)} name={header.name} /> },
  { head: "Copy", cell: (header) => <CopyButton text={headerText(header)} what={`header ${header.name}`} /> },
];

/** The headers that are sent, with their AMQP types; those of the broker and of Redrive apart. */
export function Headers({ letter }: { letter: Letter }) {
  const headers = standingEdit(letter)?.headers ?? letter.headers;
  const rows = headers.map((header, index) => ({ ...header, key: `${index} ${header.name}` }));
  const theirs = rows.filter(({ name }) => !NOT_THE_PUBLISHERS.test(name));
  const ours = rows.filter(({ name }) => NOT_THE_PUBLISHERS.test(name));
  return (
    <Section title="Headers" flush>
      {letter.unreadableProperties &&
        (letter.unreadableProperties.redacted ? (
          <p className={styles.note}>
            The properties cannot be read, and are hidden by <code>redaction.headers</code>.
          </p>
        ) : (
          <p className={styles.note}>
            The properties cannot be read. Their bytes, in base64: <code>{letter.unreadableProperties.data}</code>
          </p>
        ))}
      {theirs.length > 0 ? (
        <div className={styles.table}>
          <Table caption="Headers" columns={COLUMNS} rows={theirs} keyOf={({ key }) => key} />
        </div>
      ) : (
        !letter.unreadableProperties && <p className={styles.note}>Its publisher set no headers.</p>
      )}
      {ours.length > 0 && (
        <details className={styles.ours}>
          <summary>{`${ours.length} of the broker and of Redrive`}</summary>
          <div className={styles.table}>
            <Table caption="Headers of the broker and of Redrive" columns={COLUMNS} rows={ours} keyOf={({ key }) => key} />
          </div>
        </details>
      )}
    </Section>
  );
}

function Value({ text, name }: { text: string; name: string }) {
  if (text.length <= LONG) return <code className={styles.value}>{text}</code>;
  return (
    <pre className={`${styles.value} ${styles.long}`} tabIndex={0} aria-label={`Value of ${name}`}>
      {text}
    </pre>
  );
}
