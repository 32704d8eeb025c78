// Who uses the console. `useMe` is for everything below the login; roles decide what is offered.
import { useQuery, useQueryClient, type UseQueryResult } from "@tanstack/react-query";
import { createContext, use, useEffect } from "react";
import { get, setCsrfToken, whenLoggedOut } from "./client";
import type { Me, Role } from "./documents";
import { asProblem } from "./problem";

const RANKS: Record<Role, number> = { viewer: 0, operator: 1, admin: 2 };

export const sessionKey = ["session"] as const;

export function useSession(): UseQueryResult<Me> {
  const queries = useQueryClient();
  useEffect(
    () => whenLoggedOut(() => void queries.invalidateQueries({ queryKey: sessionKey })),
    [queries],
  );
  return useQuery({
    queryKey: sessionKey,
    queryFn: async ({ signal }) => {
      const me = await get("/api/v1/session", {}, { signal });
      setCsrfToken(me.csrfToken);
      return me;
    },
    staleTime: 60_000,
    // Nothing can be shown before it is known: it is asked for until somebody answers.
    retry: (_, error) => asProblem(error).passing,
  });
}

const MeContext = createContext<Me | null>(null);
export const MeProvider = MeContext.Provider;

export function useMe(): Me {
  const me = use(MeContext);
  if (me === null) throw new Error("useMe is for what is shown after the login");
  return me;
}

/** Whether who is logged in may do what needs that role. */
export function useMay(role: Role): boolean {
  const mine = useMe().role;
  return mine !== null && RANKS[mine] >= RANKS[role];
}
