// For what a screen reads in its own way: a number that grows whenever live events hint at a
// resource, also while the screen is not shown.
import { useQuery, type QueryClient } from "@tanstack/react-query";

const keyOf = (resource: string) => ["hint", resource] as const;

export function useHint(resource: string): number {
  const { data } = useQuery({
    queryKey: keyOf(resource),
    queryFn: () => 0,
    enabled: false,
    initialData: 0,
    staleTime: Infinity,
    gcTime: Infinity,
  });
  return data;
}

export function hint(queries: QueryClient, resource: string): void {
  queries.setQueryData<number>(keyOf(resource), (before = 0) => before + 1);
}

/** Anything may have changed. */
export function hintAtAll(queries: QueryClient): void {
  queries.setQueriesData<number>({ queryKey: ["hint"] }, (before = 0) => before + 1);
}
