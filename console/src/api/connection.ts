// Whether the server can be reached: the one place that knows. Calls, the live events and the code of
// screens tell it what they met; whoever shows or waits asks here, so that no two parts of a page say
// different things.
//
// While the server is away it is asked now and then whether it answers. As soon as it does, `whenBack`
// is told, and what had failed for that reason is done again.
import { useSyncExternalStore } from "react";

export type Connection = "connecting" | "live" | "away";

const ASK = "/healthz";
const EVERY = 1000;
const LONGEST = 4000;
const PATIENCE = 10_000;

let reachable = true;
let streaming = false;
let asking = false;
const watching = new Set<() => void>();
const waiting = new Set<() => void>();

function set(now: { reachable?: boolean; streaming?: boolean }): void {
  const back = now.reachable === true && !reachable;
  reachable = now.reachable ?? reachable;
  streaming = now.streaming ?? streaming;
  for (const each of watching) each();
  if (back) for (const each of [...waiting]) each();
}

/** Whatever the server said: it is there. */
export function answered(): void {
  if (!reachable) set({ reachable: true });
}

/** A call did not reach it. */
export function unanswered(): void {
  set({ reachable: false });
  void askUntilThere();
}

/** The live events flow, or no longer do; then it is found out at once whether the server is away. */
export function flows(now: boolean): void {
  set({ streaming: now });
  if (now) answered();
  else void askUntilThere();
}

async function askUntilThere(): Promise<void> {
  if (asking) return;
  asking = true;
  for (let pause = EVERY; !(await isThere()); pause = Math.min(pause * 2, LONGEST)) {
    if (reachable) set({ reachable: false });
    await new Promise((resolve) => window.setTimeout(resolve, pause));
  }
  asking = false;
  answered();
}

async function isThere(): Promise<boolean> {
  try {
    return !isOfAnother(await fetch(ASK, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) }));
  } catch {
    return false;
  }
}

/** Said by something that stands before the server, and did not reach it. */
export function isOfAnother(answer: Response): boolean {
  const ours = /json/.test(answer.headers.get("Content-Type") ?? "");
  return [502, 503, 504].includes(answer.status) && !ours;
}

/** Have it told each time that the server is there again. */
export function whenBack(act: () => void): () => void {
  waiting.add(act);
  return () => void waiting.delete(act);
}

/** Ends as soon as the server answers; whether it was away until then. */
export async function reached(): Promise<boolean> {
  if (await isThere()) {
    answered();
    return false;
  }
  const back = new Promise<boolean>((resolve) => {
    const end = whenBack(() => {
      end();
      resolve(true);
    });
  });
  unanswered();
  return back;
}

function connection(): Connection {
  if (!reachable) return "away";
  return streaming ? "live" : "connecting";
}

export function useConnection(): Connection {
  return useSyncExternalStore(watch, connection);
}

function watch(listener: () => void): () => void {
  watching.add(listener);
  return () => void watching.delete(listener);
}
