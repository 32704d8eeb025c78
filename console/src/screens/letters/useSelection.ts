// Which letters are ticked: single ones, or all that match the filters.
import { useEffect, useMemo, useRef, useState } from "react";
import type { LetterSummary, Selection, State } from "../../api/documents";
import type { Chosen } from "./actions/chosen";

/** The API takes so many ids at once; beyond, letters are chosen by a filter. */
const MOST_IDS = 1000;

/** Ids, and the state in which each was last seen in the list. */
type Ticked = ReadonlyMap<string, State>;

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
  const [ids, setIds] = useState<Ticked>(new Map());
  const [all, setAll] = useState(false);
  const [left, setLeft] = useState(0);
  // By its id: letters that come in move all others down.
  const last = useRef<string | null>(null);
  const clear = () => {
    setIds(new Map());
    setAll(false);
    setLeft(0);
    last.current = null;
  };
  // Other filters, other letters: nothing stays ticked that is not seen.
  useEffect(clear, [text]);
  useEffect(() => setIds((before) => seenAgain(before, letters)), [letters]);
  const chosen = useMemo<Chosen>(
    () => (all ? { filter } : { ids: [...ids.keys()], states: [...new Set(ids.values())] }),
    [all, filter, ids],
  );
  const read = letters.slice(0, MOST_IDS);
  const allRead = !all && read.length > 0 && read.every(({ id }) => ids.has(id));
  return {
    has: (id) => all || ids.has(id),
    toggle: (index, range = false) => {
      const id = letters[index]?.id ?? "";
      const before = range ? letters.findIndex((each) => each.id === last.current) : -1;
      const from = before < 0 ? index : before;
      const some = letters.slice(Math.min(from, index), Math.max(from, index) + 1);
      const after = new Map(all ? read.map(asTicked) : ids);
      const on = range || !after.has(id);
      let over = 0;
      for (const each of some) {
        if (!on) after.delete(each.id);
        else if (after.has(each.id) || after.size < MOST_IDS) after.set(each.id, each.status);
        else over += 1;
      }
      last.current = id;
      setAll(false);
      setIds(after);
      setLeft(over);
    },
    toggleRead: () => {
      setAll(false);
      setLeft(0);
      setIds(new Map(allRead || all ? [] : read.map(asTicked)));
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

function asTicked({ id, status }: LetterSummary): readonly [string, State] {
  return [id, status];
}

function seenAgain(ticked: Ticked, letters: readonly LetterSummary[]): Ticked {
  const changed = letters.filter(({ id, status }) => ticked.has(id) && ticked.get(id) !== status);
  return changed.length > 0 ? new Map([...ticked, ...changed.map(asTicked)]) : ticked;
}
