// The ledger as the live events bring it: counts that are current without being asked for.
import { useQuery } from "@tanstack/react-query";
import type { components } from "../api/schema";

export type Ledger = components["schemas"]["Ledger"];

export const ledgerKey = ["ledger"] as const;

/** Null until the first event has come. */
export function useLedger(): Ledger | null {
  const { data } = useQuery<Ledger | null>({
    queryKey: ledgerKey,
    queryFn: () => Promise.resolve(null),
    enabled: false,
    initialData: null,
    staleTime: Infinity,
  });
  return data ?? null;
}
