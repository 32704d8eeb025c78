// How alerts stand. No event tells that one begins to fire, so they are asked for now and then; that
// somebody silenced one comes by the live events. One query for the whole console.
import { useQuery } from "@tanstack/react-query";
import { get } from "./client";
import type { Alert } from "./documents";

const EVERY = 10_000;

export const alertsKey = ["alerts"] as const;

export function useAlerts() {
  return useQuery({
    queryKey: alertsKey,
    queryFn: ({ signal }) => get("/api/v1/alerts", {}, { signal }),
    refetchInterval: EVERY,
    staleTime: EVERY / 2,
  });
}

/** It fires, and nobody has silenced it. */
export function isLoud({ phase, silence }: Alert): boolean {
  return phase === "firing" && silence === null;
}
