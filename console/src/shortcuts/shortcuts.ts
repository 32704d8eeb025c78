// Keyboard shortcuts: single keys (`j`), and sequences of two (`g l`). They rest while somebody types
// or a dialog is open. What is active now is what the help (`?`) lists.
import { useEffect, useRef, useSyncExternalStore } from "react";

export interface Shortcut {
  keys: string;
  what: string;
  act: () => void;
}

const SEQUENCE = 1200;
let active: readonly Shortcut[] = [];
const listeners = new Set<() => void>();
let before = "";
let timer: number | undefined;

function change(shortcuts: readonly Shortcut[]): void {
  active = shortcuts;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function useActiveShortcuts(): readonly Shortcut[] {
  return useSyncExternalStore(subscribe, () => active);
}

/** A shortcut as long as the component is shown; with `enabled` false it is not there at all. */
export function useShortcut(keys: string, what: string, act: () => void, enabled = true): void {
  const newest = useRef(act);
  useEffect(() => {
    newest.current = act;
  });
  useEffect(() => {
    if (!enabled) return;
    const shortcut = { keys, what, act: () => newest.current() };
    change([...active, shortcut]);
    return () => change(active.filter((each) => each !== shortcut));
  }, [keys, what, enabled]);
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable) return true;
  if (target instanceof HTMLInputElement) return target.type !== "checkbox" && target.type !== "radio";
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isTyping(event.composedPath()[0] ?? null) || document.querySelector("dialog[open]") !== null) return;
  const wanted = [`${before} ${event.key}`.trim(), event.key];
  const found = wanted
    .map((keys) => active.findLast((each) => each.keys === keys))
    .find((each) => each !== undefined);
  window.clearTimeout(timer);
  before = "";
  if (found) {
    event.preventDefault();
    found.act();
  } else if (active.some((each) => each.keys.startsWith(`${event.key} `))) {
    before = event.key;
    timer = window.setTimeout(() => (before = ""), SEQUENCE);
  }
}

window.addEventListener("keydown", onKey);
