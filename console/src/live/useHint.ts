// For what a screen reads in its own way: a number that grows whenever live events hint at a key.
import { useQuery } from "@tanstack/react-query";

let hints = 0;

export function useHint(resource: string): number {
  const { data } = useQuery({
    queryKey: [resource, "hint"],
    queryFn: () => ++hints,
    staleTime: Infinity,
    gcTime: 0,
  });
  return data ?? 0;
}
