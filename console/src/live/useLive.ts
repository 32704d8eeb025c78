// Live events: hints of what to read again. One stream for the whole console.
//
// Hints are gathered and acted on together, at most about once a second, however many come. A stream
// that breaks comes back by itself (EventSource, with Last-Event-ID); one that the server refused is
// opened anew with growing pauses, and then everything is read again, for hints may have been missed.
// Whether events flow is told to `connection.ts`, which knows the rest.
import { useQueryClient, type QueryClient, type QueryKey } from "@tanstack/react-query";
import { useEffect } from "react";
import { flows } from "../api/connection";
import { sessionKey } from "../api/session";
import { ledgerKey, type Ledger } from "./ledger";
import { readAllAgain } from "./readAgain";
import { hint, hintAtAll } from "./useHint";

const GATHER = 400;
const BETWEEN = 1000;
const LONGEST_PAUSE = 15_000;
/** Beyond this many single letters it is cheaper to read all that are shown again. */
const MOST_SINGLE = 50;

const LETTERS: readonly QueryKey[] = [["letters"], ["letter"], ["groups"]];

class Hints {
  private keys = new Map<string, QueryKey>();
  private timer: number | undefined;
  private last = 0;

  constructor(private queries: QueryClient) {}

  add(...keys: QueryKey[]): void {
    for (const key of keys) this.keys.set(JSON.stringify(key), key);
    if (this.timer !== undefined || keys.length === 0) return;
    const wait = Math.max(GATHER, this.last + BETWEEN - Date.now());
    this.timer = window.setTimeout(() => this.act(), wait);
  }

  everything(): void {
    hintAtAll(this.queries);
    readAllAgain(this.queries);
  }

  stop(): void {
    window.clearTimeout(this.timer);
  }

  private act(): void {
    const keys = [...this.keys.values()];
    this.keys.clear();
    this.timer = undefined;
    this.last = Date.now();
    for (const queryKey of keys) {
      if (queryKey.length === 1) hint(this.queries, String(queryKey[0]));
      void this.queries.invalidateQueries({ queryKey });
    }
  }
}

export function useLive(): void {
  const queries = useQueryClient();
  useEffect(() => {
    const hints = new Hints(queries);
    let source: EventSource | undefined;
    let timer: number | undefined;
    let pause = 1000;
    let missed = false;

    const open = () => {
      source = new EventSource("/api/v1/events");
      source.onopen = () => {
        pause = 1000;
        flows(true);
        if (missed) hints.everything();
        missed = false;
      };
      source.onerror = () => {
        flows(false);
        if (source?.readyState !== EventSource.CLOSED) return;
        missed = true;
        // It may have been refused because nobody is logged in any longer.
        void queries.invalidateQueries({ queryKey: sessionKey });
        timer = window.setTimeout(open, pause);
        pause = Math.min(pause * 2, LONGEST_PAUSE);
      };
      listen(source, queries, hints);
    };
    open();
    return () => {
      window.clearTimeout(timer);
      hints.stop();
      source?.close();
    };
  }, [queries]);
}

function listen(source: EventSource, queries: QueryClient, hints: Hints): void {
  const on = <Data>(name: string, act: (data: Data) => void) =>
    source.addEventListener(name, (event) => act(JSON.parse(event.data as string) as Data));
  on<Ledger>("stats", (ledger) => {
    const before = queries.getQueryData<Ledger | null>(ledgerKey);
    queries.setQueryData(ledgerKey, ledger);
    hints.add(["stats"]);
    // A letter that is claimed and sent is in the books at once, and in its history only later.
    if (before && JSON.stringify(before) !== JSON.stringify(ledger)) hints.add(...LETTERS);
  });
  on<{ ids: string[]; more: boolean }>("letters", ({ ids, more }) => {
    hints.add(["letters"], ["groups"]);
    if (more || ids.length > MOST_SINGLE) hints.add(["letter"]);
    else hints.add(...ids.map((id) => ["letter", id]));
  });
  on<{ id: string }>("replay", ({ id }) => hints.add(["replays"], ["replay", id], ...LETTERS));
  on<{ resources: string[] }>("changed", ({ resources }) =>
    hints.add(["audit"], ...resources.map((each) => [each])),
  );
  on("resync", () => hints.everything());
}
