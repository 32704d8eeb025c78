// Which letters an action is for: those that were picked, or all that match a filter.
import { useQuery } from "@tanstack/react-query";
import { get } from "../../../api/client";
import type { Selection, State } from "../../../api/documents";
import { frozen } from "../../../live/readAgain";

/** `states`: those in which letters that were picked in a list were last seen there. */
export type Chosen = { ids: readonly string[]; states?: readonly State[] } | { filter: Selection };

/** How many letters that is now, exactly; null until it is known. */
export function useChosenCount(chosen: Chosen): { letters: number | null; error: unknown } {
  const filter = "filter" in chosen ? chosen.filter : null;
  const counted = useQuery({
    queryKey: ["count to confirm", filter],
    queryFn: ({ signal }) => get("/api/v1/letters/count", { query: filter ?? {} }, { signal }),
    enabled: filter !== null,
    // Asked for each dialog anew; but nothing changes it while somebody reads it.
    meta: frozen,
    staleTime: Infinity,
    gcTime: 0,
    refetchOnMount: "always",
  });
  if ("ids" in chosen) return { letters: chosen.ids.length, error: null };
  return { letters: counted.data?.letters ?? null, error: counted.error };
}
