// A time as people say it, with the exact one on hover. All of them move on together.
import { useSyncExternalStore } from "react";

const EVERY = 5_000;
let now = Date.now();
const listeners = new Set<() => void>();

function tick(): void {
  now = Date.now();
  for (const listener of listeners) listener();
}

let timer: number | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= window.setInterval(tick, EVERY);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      window.clearInterval(timer);
      timer = undefined;
    }
  };
}

const exactly = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "long",
});

export function Time({ at, absent = "–" }: { at: string | null | undefined; absent?: string }) {
  useSyncExternalStore(subscribe, () => now);
  if (!at) return <span>{absent}</span>;
  const moment = new Date(at);
  return (
    <time dateTime={at} title={`${exactly.format(moment)}\n${at}`}>
      {relative(moment.getTime() - Date.now())}
    </time>
  );
}

const UNITS: readonly [limit: number, per: number, short: string][] = [
  [60_000, 1000, "s"],
  [3_600_000, 60_000, "m"],
  [86_400_000 * 2, 3_600_000, "h"],
  [86_400_000 * 60, 86_400_000, "d"],
  [86_400_000 * 730, 86_400_000 * 30.44, "mo"],
  [Infinity, 86_400_000 * 365.25, "y"],
];

/** `3m ago`, `in 2h`, `just now`. */
export function relative(milliseconds: number): string {
  const size = Math.abs(milliseconds);
  if (size < 3000) return milliseconds > 0 ? "now" : "just now";
  const [, per, short] = UNITS.find(([limit]) => size < limit) ?? [0, 1, ""];
  const text = `${Math.floor(size / per)}${short}`;
  return milliseconds > 0 ? `in ${text}` : `${text} ago`;
}

/** How long something took: `350 ms`, `12 s`, `3 min`. */
export function lasting(milliseconds: number): string {
  const size = Math.abs(milliseconds);
  if (size < 1000) return `${Math.round(size)} ms`;
  const [, per, short] = UNITS.find(([limit]) => size < limit) ?? [0, 1, ""];
  return `${Math.floor(size / per)}${short}`;
}
