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
  const last = useRef<number | null>(null);
  const clear = () => {
    setIds(new Set());
    setAll(false);
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
      const from = range && last.current !== null ? last.current : index;
      const [low, high] = from < index ? [from, index] : [index, from];
      const some = letters.slice(low, high + 1).map(({ id }) => id);
      last.current = index;
      setAll(false);
      setIds((before) => {
        const after = new Set(all ? read.map(({ id }) => id) : before);
        const on = range || !after.has(letters[index]?.id ?? "");
        for (const id of some) {
          if (!on) after.delete(id);
          else if (after.size < MOST_IDS) after.add(id);
        }
        return after;
      });
    },
    toggleRead: () => {
      setAll(false);
      setIds(allRead || all ? new Set() : new Set(read.map(({ id }) => id)));
    },
    everything: () => setAll(true),
    clear,
    number: ids.size,
    all,
    allRead,
    chosen,
  };
}
