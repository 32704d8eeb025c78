// Any number of letters: only those that are seen are in the page.
//
// Where somebody had scrolled to, and which letter they had opened, is kept while the console is
// open: who comes back from a letter finds the list as it was.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import type { LetterSummary } from "../../api/documents";
import { useShortcut } from "../../shortcuts/shortcuts";
import { LetterRow } from "./LetterRow";
import styles from "./LetterTable.module.css";
import type { LetterSelection } from "./useSelection";

const AHEAD = 40;
const HEIGHT = 48;

/** Where the keyboard is: at a letter, for others come in before it; and its place, should it go. */
interface Cursor {
  id: string | null;
  place: number;
}

const NOWHERE: Cursor = { id: null, place: 0 };
const kept = { list: "", offset: 0, cursor: NOWHERE };

interface LetterTableProps {
  letters: readonly LetterSummary[];
  more: boolean;
  readMore: () => void;
  /** Null: who looks may not change anything. */
  selection: LetterSelection | null;
  /** Names the list; another one begins at the top. */
  list: string;
  /** The query part of the address, handed on to each letter. */
  query: string;
}

export function LetterTable(props: LetterTableProps) {
  const { letters, more, readMore, selection, list } = props;
  const frame = useRef<HTMLDivElement>(null);
  const same = kept.list === list;
  const [cursor, setCursor] = useState(same ? kept.cursor : NOWHERE);
  const rows = useVirtualizer({
    count: letters.length,
    getScrollElement: () => frame.current,
    estimateSize: () => HEIGHT,
    getItemKey: (index) => letters[index]?.id ?? index,
    initialOffset: same ? kept.offset : 0,
    overscan: 10,
    scrollMargin: 0,
  });
  const shown = rows.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more && last >= letters.length - AHEAD) readMore();
  }, [last, letters.length, more, readMore]);
  useEffect(() => {
    if (kept.list === list) return;
    Object.assign(kept, { list, offset: 0, cursor: NOWHERE });
    setCursor(NOWHERE);
    frame.current?.scrollTo(0, 0);
  }, [list]);
  useEffect(() => {
    kept.cursor = cursor;
  }, [cursor]);
  useCursor(props, cursor, setCursor, (place) => rows.scrollToIndex(place, { align: "auto" }));
  return (
    <div
      ref={frame}
      className={styles.frame}
      onScroll={(event) => {
        kept.offset = event.currentTarget.scrollTop;
      }}
    >
      <div role="table" aria-label="Letters" aria-rowcount={more ? -1 : letters.length + 1}>
        <div role="rowgroup" className={styles.headGroup}>
          <div role="row" aria-rowindex={1} className={`${styles.head} ${selection ? "" : styles.noTicks}`}>
            {selection && (
              <span role="columnheader" className={styles.tick}>
                <input
                  type="checkbox"
                  aria-label="Select all letters that are read"
                  checked={selection.all || selection.allRead}
                  ref={(box) => {
                    if (box) box.indeterminate = !selection.all && !selection.allRead && selection.number > 0;
                  }}
                  onChange={selection.toggleRead}
                />
              </span>
            )}
            {HEADS.map(({ text, style }) => (
              <span key={text} role="columnheader" className={style}>
                {text}
              </span>
            ))}
          </div>
        </div>
        <div role="rowgroup" className={styles.body} style={{ height: rows.getTotalSize() }}>
          {shown.map((row) => {
            const letter = letters[row.index];
            return (
              letter && (
                <LetterRow
                  key={row.key}
                  letter={letter}
                  index={row.index}
                  start={row.start}
                  measure={rows.measureElement}
                  query={props.query}
                  selection={selection}
                  current={letter.id === cursor.id}
                  onOpen={() => setCursor({ id: letter.id, place: row.index })}
                />
              )
            );
          })}
        </div>
      </div>
    </div>
  );
}

const HEADS = [
  { text: "State", style: "" },
  { text: "Error", style: "" },
  { text: "Queue", style: styles.queue },
  { text: "Retries", style: styles.retries },
  { text: "Failed", style: styles.when },
] as const;

function useCursor(
  props: LetterTableProps,
  cursor: Cursor,
  set: (to: Cursor) => void,
  show: (place: number) => void,
): void {
  const [, go] = useLocation();
  const { letters, selection } = props;
  const at = useMemo(() => letters.findIndex(({ id }) => id === cursor.id), [letters, cursor.id]);
  const current = letters[at];
  const move = (index: number) => {
    const place = Math.max(0, Math.min(index, letters.length - 1));
    set({ id: letters[place]?.id ?? null, place });
    show(place);
  };
  useEffect(() => {
    if (at >= 0 && at !== cursor.place) set({ id: cursor.id, place: at });
  }, [at, cursor, set]);
  // The letter after one that is gone stands in its place now.
  useShortcut("j", "Next letter", () => move(current ? at + 1 : cursor.place));
  useShortcut("k", "Previous letter", () => move((current ? at : cursor.place) - 1));
  useShortcut("o", "Open the letter", () => current && go(`/letters/${current.id}${props.query}`));
  useShortcut("x", "Select the letter", () => current && selection?.toggle(at), selection !== null);
}
