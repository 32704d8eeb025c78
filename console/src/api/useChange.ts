// One change of one thing: a mutation whose key stays the same until it has worked, was refused or is
// another change, so that "try again" after a lost answer, or while the first try runs, never does it
// twice.
import { useMutation, useQueryClient, type QueryKey } from "@tanstack/react-query";
import { useRef } from "react";
import { useToast } from "../parts/Toasts";
import { newKey } from "./client";
import { asProblem, type Problem } from "./problem";

interface Change<Given, Result> {
  /** Makes the change; hand the key on to the client. */
  change: (given: Given, key: string) => Promise<Result>;
  /** What is read again once it is done. */
  touches: readonly QueryKey[];
  /** What to say when it is done; null: nothing. */
  done?: (result: Result, given: Given) => string | null;
  /** After it was done. */
  then?: (result: Result, given: Given) => void;
}

export interface Changing<Given> {
  make: (given: Given) => void;
  busy: boolean;
  problem: Problem | null;
  forget: () => void;
}

export function useChange<Given, Result>(change: Change<Given, Result>): Changing<Given> {
  const queries = useQueryClient();
  const toast = useToast();
  const sent = useRef({ what: "", key: "" });
  const readAgain = () =>
    Promise.all(change.touches.map((queryKey) => queries.invalidateQueries({ queryKey })));
  const mutation = useMutation<Result, unknown, Given>({
    mutationFn: (given) => {
      const what = JSON.stringify(given);
      if (sent.current.what !== what) sent.current = { what, key: newKey() };
      return change.change(given, sent.current.key);
    },
    onSuccess: async (result, given) => {
      sent.current = { what: "", key: "" };
      const said = change.done?.(result, given);
      if (said) toast(said);
      change.then?.(result, given);
      await readAgain();
    },
    onError: async (error) => {
      const problem = asProblem(error);
      // Refused is settled: the next try is another request, even if it says the same.
      if (problem.settled) sent.current = { what: "", key: "" };
      if (problem.overtaken) await readAgain();
    },
  });
  return {
    make: (given) => mutation.mutate(given),
    busy: mutation.isPending,
    problem: mutation.error === null ? null : asProblem(mutation.error),
    forget: mutation.reset,
  };
}
