// Any number of letters: only those that are seen are in the page.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import { Link } from "wouter";
import type { LetterSummary } from "../../api/documents";
import { StateBadge } from "../../parts/StateBadge";
import { Time } from "../../parts/Time";
import styles from "./LetterTable.module.css";

const AHEAD = 30;

interface LetterTableProps {
  letters: readonly LetterSummary[];
  more: boolean;
  readMore: () => void;
}

export function LetterTable({ letters, more, readMore }: LetterTableProps) {
  const frame = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: letters.length,
    getScrollElement: () => frame.current,
    estimateSize: () => 52,
    getItemKey: (index) => letters[index]?.id ?? index,
    overscan: 8,
  });
  const shown = rows.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more && last >= letters.length - AHEAD) readMore();
  }, [last, letters.length, more, readMore]);
  return (
    <div ref={frame} className={styles.frame} tabIndex={0} role="region" aria-label="Letters">
      <div role="table" aria-label="Letters" aria-rowcount={more ? -1 : letters.length + 1}>
        <div role="rowgroup">
          <div role="row" className={styles.head}>
            {["State", "Error", "Queue", "Failed"].map((head) => (
              <span key={head} role="columnheader">
                {head}
              </span>
            ))}
          </div>
        </div>
        <div role="rowgroup" className={styles.body} style={{ height: rows.getTotalSize() }}>
          {shown.map((row) => (
            <Row
              key={row.key}
              letter={letters[row.index]!}
              index={row.index}
              start={row.start}
              measure={rows.measureElement}
            />
          ))}
        </div>
      </div>
    </div>
  );
}

function Row(props: {
  letter: LetterSummary;
  index: number;
  start: number;
  measure: (element: HTMLElement | null) => void;
}) {
  const { letter } = props;
  return (
    <div
      role="row"
      ref={props.measure}
      data-index={props.index}
      aria-rowindex={props.index + 2}
      className={styles.row}
      style={{ transform: `translateY(${props.start}px)` }}
    >
      <span role="cell">
        <StateBadge state={letter.status} />
      </span>
      <span role="cell" className={styles.error}>
        <Link href={`/letters/${letter.id}${window.location.search}`}>{letter.errorType}</Link>
        <span>{letter.errorReason}</span>
      </span>
      <span role="cell" className={styles.queue}>
        {letter.origin.queue ?? "–"}
      </span>
      <span role="cell" className={styles.when}>
        <Time at={letter.lastFailedAt} />
      </span>
    </div>
  );
}
