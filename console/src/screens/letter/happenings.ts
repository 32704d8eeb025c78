// Everything that happened to a letter, from its first death to now and what is due, in order.
import { wordOf, type Letter } from "../../api/documents";
import type { Tone } from "../../parts/StateBadge";

export interface Happening {
  /** Null: nobody wrote down when. Those come first. */
  at: string | null;
  what: string;
  more: string;
  tone: Tone;
  /** It has not happened yet. */
  ahead?: boolean;
}

const RESULTS: Record<Letter["replayAttempts"][number]["result"], { words: string; tone: Tone }> = {
  sending: { words: "is being sent", tone: "processing" },
  sent: { words: "sent, and confirmed by the broker", tone: "processing" },
  in_doubt: { words: "in doubt: it may have been sent", tone: "manual" },
  refused: { words: "refused: it is in no queue", tone: "failed" },
  returned: { words: "returned: no queue took it", tone: "failed" },
  failed: { words: "sent, and failed again", tone: "failed" },
  resolved: { words: "sent, and consumed", tone: "resolved" },
};

export function happeningsOf(letter: Letter): Happening[] {
  const past = [...deaths(letter), ...history(letter), ...attempts(letter)];
  past.sort((one, other) => (one.at ?? "").localeCompare(other.at ?? ""));
  return [...past, ...ahead(letter)];
}

function deaths(letter: Letter): Happening[] {
  return letter.deaths.map(({ at, queue, reason, count, routingKeys }) => ({
    at,
    what: `${reason} in ${queue}`,
    more: [count > 1 ? `${count} times, last` : "", routingKeys.length > 0 ? `as ${routingKeys.join(", ")}` : ""]
      .filter(Boolean)
      .join(", "),
    tone: reason === "expired" ? "archived" : "failed",
  }));
}

function history(letter: Letter): Happening[] {
  return letter.history.map(({ at, actor, from, to, reason }) => ({
    at,
    what: from === null ? `collected as ${wordOf(to)}` : from === to ? reason || wordOf(to) : `now ${wordOf(to)}`,
    more: [from !== null && from === to ? "" : reason, actor && `by ${actor}`].filter(Boolean).join(", "),
    tone: wordOf(to) as Tone,
  }));
}

function attempts(letter: Letter): Happening[] {
  return letter.replayAttempts.map(({ timestamp, workerId, strategy, generation, result, queue }) => ({
    at: timestamp,
    what: `Attempt ${generation}: ${RESULTS[result].words}`,
    more: `${queue ? `to ${queue}, ` : ""}${strategy}, by ${workerId}`,
    tone: RESULTS[result].tone,
  }));
}

function ahead(letter: Letter): Happening[] {
  const found: Happening[] = [];
  if (letter.nextRetryAt !== null) {
    const due = Date.parse(letter.nextRetryAt) <= Date.now();
    const words = due ? { what: "Due since then", more: "the next worker takes it" } : { what: "Sent again", more: "by a worker" };
    found.push({ at: letter.nextRetryAt, ...words, tone: "pending", ahead: true });
  }
  if (letter.verdictDueAt !== null) {
    found.push({
      at: letter.verdictDueAt,
      what: "Counts as consumed",
      more: "if it does not come back before",
      tone: "processing",
      ahead: true,
    });
  }
  return found;
}
