// A plain table for lists of some hundred rows. (Letters have their own, which is virtual.)
// At phone width each row becomes a block, with the heads of the columns beside the values.
import type { ReactNode } from "react";
import styles from "./Table.module.css";

export interface Column<Row> {
  head: string;
  cell: (row: Row) => ReactNode;
  /** Numbers stand right. */
  numeric?: boolean;
  /** Takes the width that is left; others are as wide as what is in them. */
  grows?: boolean;
  /** Stays on one line, where there is room for columns. */
  unbroken?: boolean;
}

interface TableProps<Row> {
  /** What the table is, for screen readers. */
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** Without a frame of its own, inside a section. */
  bare?: boolean;
}

export function Table<Row>({ caption, columns, rows, keyOf, bare }: TableProps<Row>) {
  return (
    <div className={bare ? "" : styles.frame}>
      <table className={styles.table}>
        <caption className="unseen">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.head} scope="col" className={classOf(column)}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map((column) => (
                <td key={column.head} data-head={column.head} className={classOf(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** What can be done with a row: buttons beside each other, which do not make it taller. */
export function RowActions({ children }: { children: ReactNode }) {
  return <span className={styles.acts}>{children}</span>;
}

function classOf<Row>(column: Column<Row>): string {
  const looks = [column.numeric && styles.numeric, column.grows && styles.grows, column.unbroken && styles.unbroken];
  return looks.filter(Boolean).join(" ");
}
