// Everything is read again: hints may have been missed, or somebody has logged in.
//
// But for what a dialog asks to confirm: that stays as somebody has read it, until they ask again or
// the server refuses it. Else "Discard 12 letters" would become another number under their finger.
import type { QueryClient, QueryKey } from "@tanstack/react-query";

/** The `meta` of a query that is shown to be confirmed. */
export const frozen = { frozen: true };

/** `but`: what was just set. */
export function readAllAgain(queries: QueryClient, but?: QueryKey): void {
  void queries.invalidateQueries({
    predicate: ({ queryKey, meta, state }) =>
      queryKey[0] !== but?.[0] && !(meta?.frozen === true && state.data !== undefined),
  });
}
