// Letters, page by page, as far as somebody has scrolled.
//
// Live: while few pages are read, a hint reads them again. Beyond that a list that is re-read under
// somebody's eyes would jump and cost much: then `changed` says that there is something new.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { get } from "../../api/client";
import type { LetterPage, LetterSummary } from "../../api/documents";
import { useHint } from "../../live/useHint";
import type { LetterFilters } from "./filters";

const PAGE = 100;
const READ_AGAIN = 3;

export interface LetterPages {
  letters: readonly LetterSummary[];
  /** False while the first page of these filters has not come. */
  ready: boolean;
  error: Error | null;
  more: boolean;
  changed: boolean;
  readMore: () => void;
  readAgain: () => void;
}

export function useLetterPages(filters: Pick<LetterFilters, "query" | "text" | "faults">): LetterPages {
  const meant = filters.faults.length === 0;
  const pages = useInfiniteQuery({
    queryKey: ["letter pages", filters.text],
    queryFn: ({ pageParam, signal }) =>
      get(
        "/api/v1/letters",
        { query: { ...filters.query, limit: PAGE, ...(pageParam ? { after: pageParam } : {}) } },
        { signal },
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (last: LetterPage) => last.next,
    placeholderData: (before) => before,
    gcTime: 60_000,
    enabled: meant,
  });
  const { changed, readAgain } = useHints(
    { list: filters.text, costly: filters.query.search !== undefined },
    meant ? (pages.data?.pages.length ?? 0) : 0,
    () => void pages.refetch(),
  );
  const data = meant ? pages.data : undefined;
  const letters = useMemo(() => data?.pages.flatMap((page) => page.items) ?? [], [data]);
  return {
    letters,
    ready: data !== undefined,
    error: meant ? pages.error : null,
    more: meant && pages.hasNextPage,
    changed,
    readMore: () => {
      if (pages.hasNextPage && !pages.isFetching) void pages.fetchNextPage();
    },
    readAgain: () => {
      if (meant) readAgain();
    },
  };
}

/** The hint up to which each list was read: also of lists that are not shown, but kept. */
const readUpTo = new Map<string, number>();

/** A search reads all of the store that the other filters leave: it is not done again by itself. */
function useHints({ list, costly }: { list: string; costly: boolean }, read: number, readAgain: () => void) {
  const hint = useHint("letters");
  const [changed, setChanged] = useState<string | null>(null);
  useEffect(() => {
    if (read === 0) return;
    const before = readUpTo.get(list);
    if (before === hint) return;
    readUpTo.set(list, hint);
    if (before === undefined) return;
    if (read <= READ_AGAIN && !costly) readAgain();
    else setChanged(list);
  });
  return {
    changed: changed === list,
    readAgain: () => {
      setChanged(null);
      readAgain();
    },
  };
}
