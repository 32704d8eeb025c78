// Which groups are shown, and in which order.
import { openLetters, type Group } from "../../api/documents";

export type Order = "open" | "newest" | "oldest";
export type Shown = "open" | "all";

export const ORDERS = [
  { value: "open", text: "Most open" },
  { value: "newest", text: "Last seen" },
  { value: "oldest", text: "First seen" },
] as const satisfies readonly { value: Order; text: string }[];

interface Wanted {
  search: string;
  queue: string;
  assignee: string;
  shown: Shown;
  order: Order;
}

export function arranged(groups: readonly Group[], wanted: Wanted): Group[] {
  const words = wanted.search.toLowerCase().split(/\s+/).filter(Boolean);
  return groups
    .filter(({ counts }) => wanted.shown === "all" || openLetters(counts) > 0)
    .filter(({ queue }) => !wanted.queue || queue === wanted.queue)
    .filter(({ note }) => !wanted.assignee || note?.assignee === wanted.assignee)
    .filter((group) => words.every((word) => textOf(group).includes(word)))
    .sort(COMPARED[wanted.order]);
}

function textOf({ errorType, reason, queue, note, fingerprint }: Group): string {
  return [errorType, reason, queue, note?.note, note?.assignee, fingerprint].join("\n").toLowerCase();
}

const COMPARED: Record<Order, (one: Group, other: Group) => number> = {
  open: (one, other) =>
    openLetters(other.counts) - openLetters(one.counts) || other.lastSeenAt.localeCompare(one.lastSeenAt),
  newest: (one, other) => other.lastSeenAt.localeCompare(one.lastSeenAt),
  oldest: (one, other) => one.firstSeenAt.localeCompare(other.firstSeenAt),
};
