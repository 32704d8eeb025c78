import { memo } from "react";
import { Link } from "wouter";
import type { LetterSummary } from "../../api/documents";
import { count } from "../../parts/numbers";
import { StateBadge } from "../../parts/StateBadge";
import { Time } from "../../parts/Time";
import styles from "./LetterTable.module.css";
import type { LetterSelection } from "./useSelection";

interface LetterRowProps {
  letter: LetterSummary;
  index: number;
  start: number;
  measure: (element: HTMLElement | null) => void;
  query: string;
  selection: LetterSelection | null;
  current: boolean;
  onOpen: () => void;
}

export function LetterRow(props: LetterRowProps) {
  const { letter, index, selection } = props;
  const ticked = selection?.has(letter.id) ?? false;
  const look = [styles.row, ticked && styles.ticked, props.current && styles.current, !selection && styles.noTicks];
  return (
    <div
      role="row"
      ref={props.measure}
      data-index={index}
      aria-rowindex={index + 2}
      aria-selected={selection ? ticked : undefined}
      className={look.filter(Boolean).join(" ")}
      style={{ transform: `translateY(${props.start}px)` }}
    >
      {selection && (
        <span role="cell" className={styles.tick}>
          <input
            type="checkbox"
            aria-label={`Select letter ${letter.id}`}
            checked={ticked}
            onChange={(event) => selection.toggle(index, (event.nativeEvent as MouseEvent).shiftKey)}
          />
        </span>
      )}
      <Cells letter={letter} query={props.query} onOpen={props.onOpen} />
    </div>
  );
}

const Cells = memo(function Cells(props: { letter: LetterSummary; query: string; onOpen: () => void }) {
  const { letter } = props;
  return (
    <>
      <span role="cell" className={styles.state}>
        <StateBadge state={letter.status} />
      </span>
      <span role="cell" className={styles.error}>
        <Link href={`/letters/${letter.id}${props.query}`} className={styles.open} onClick={props.onOpen}>
          {letter.errorType}
        </Link>
        <span className={styles.reason}>
          {letter.possibleDuplicate && <em>possible duplicate · </em>}
          {letter.errorReason || "no reason was given"}
        </span>
      </span>
      <span role="cell" className={styles.queue} title={`${letter.origin.exchange} · ${letter.origin.routingKey}`}>
        <span>{letter.origin.queue ?? "unknown"}</span>
        <small>{letter.origin.routingKey}</small>
      </span>
      <span role="cell" className={styles.retries} title={`${letter.retryCount} by tiers, ${letter.dlqRetryCount} as a letter`}>
        {count(letter.retryCount + letter.dlqRetryCount)}
      </span>
      <span role="cell" className={styles.when}>
        <Time at={letter.lastFailedAt} />
        {letter.nextRetryAt && <NextRetry at={letter.nextRetryAt} />}
      </span>
    </>
  );
});

function NextRetry({ at }: { at: string }) {
  if (Date.parse(at) <= Date.now()) return <small>due now</small>;
  return (
    <small>
      again <Time at={at} />
    </small>
  );
}
