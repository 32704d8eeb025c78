// What is being written, letter by letter, kept while the console is open: closing the editor, an
// error or a look at another letter loses nothing.

export interface HeaderDraft {
  /** Null: removed. */
  value: string | null;
}

export interface Draft {
  /** The edit that it was begun from; 0 for the original. */
  madeFrom: number;
  /** Null: unchanged. */
  body: string | null;
  contentType: string | null;
  headers: Readonly<Record<string, HeaderDraft>>;
  reason: string;
}

const drafts = new Map<string, Draft>();

export function draftOf(letterId: string, madeFrom: number): Draft {
  return drafts.get(letterId) ?? { madeFrom, body: null, contentType: null, headers: {}, reason: "" };
}

export function hasDraft(letterId: string): boolean {
  return drafts.has(letterId);
}

export function keepDraft(letterId: string, draft: Draft): void {
  drafts.set(letterId, draft);
}

export function dropDraft(letterId: string): void {
  drafts.delete(letterId);
}

export function changesAnything(draft: Draft): boolean {
  return draft.body !== null || draft.contentType !== null || Object.keys(draft.headers).length > 0;
}

window.addEventListener("beforeunload", (event) => {
  if ([...drafts.values()].some(changesAnything)) event.preventDefault();
});
