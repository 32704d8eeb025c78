// Which letters are ticked: single ones, or all that match the filters.
import { useEffect, useMemo, useRef, useState } from "react";
import type { LetterSummary, Selection } from "../../api/documents";
import type { Chosen } from "./actions/chosen";

/** The API takes so many ids at once; beyond, letters are chosen by a filter. */
const MOST_IDS = 1000;

export interface LetterSelection {
  has: (id: string) => boolean;
  /** `range`: and all between the last one that was ticked and this. */
  toggle: (index: number, range?: boolean) => void;
  /** Tick all that were read, or none. */
  toggleRead: () => void;
  /** All that match, also those that were not read. */
  everything: () => void;
  clear: () => void;
  number: number;
  /** So many of those that were last to be ticked were not: there is room for no more. */
  left: number;
  all: boolean;
  allRead: boolean;
  chosen: Chosen;
}

export function useSelection(
  letters: readonly LetterSummary[],
  filter: Selection,
  text: string,
): LetterSelection {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const [all, setAll] = useState(false);
  const [left, setLeft] = useState(0);
  // By its id: letters that come in move all others down.
  const last = useRef<string | null>(null);
  const clear = () => {
    setIds(new Set());
    setAll(false);
    setLeft(0);
    last.current = null;
  };
  // Other filters, other letters: nothing stays ticked that is not seen.
  useEffect(clear, [text]);
  const chosen = useMemo<Chosen>(() => (all ? { filter } : { ids: [...ids] }), [all, filter, ids]);
  const read = letters.slice(0, MOST_IDS);
  const allRead = !all && read.length > 0 && read.every(({ id }) => ids.has(id));
  return {
    has: (id) => all || ids.has(id),
    toggle: (index, range = false) => {
      const id = letters[index]?.id ?? "";
      const before = range ? letters.findIndex((each) => each.id === last.current) : -1;
      const from = before < 0 ? index : before;
      const some = letters.slice(Math.min(from, index), Math.max(from, index) + 1);
      const after = new Set(all ? read.map((each) => each.id) : ids);
      const on = range || !after.has(id);
      let over = 0;
      for (const each of some) {
        if (!on) after.delete(each.id);
        else if (after.size < MOST_IDS) after.add(each.id);
        else if (!after.has(each.id)) over += 1;
      }
      last.current = id;
      setAll(false);
      setIds(after);
      setLeft(over);
    },
    toggleRead: () => {
      setAll(false);
      setLeft(0);
      setIds(allRead || all ? new Set() : new Set(read.map(({ id }) => id)));
    },
    everything: () => {
      setAll(true);
      setLeft(0);
    },
    clear,
    number: ids.size,
    left,
    all,
    allRead,
    chosen,
  };
}
