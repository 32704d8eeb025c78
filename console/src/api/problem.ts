// What went wrong, as the API tells it (RFC 9457), or as the network does. One class, so that every
// screen shows every failure the same way.
import type { components } from "./schema";

type ProblemDocument = components["schemas"]["Problem"];
type Fault = components["schemas"]["Fault"];

const KIND = "urn:redrive:problem:";
const UNREACHABLE = "unreachable";
const UNDER_WAY = "under-way";

export class Problem extends Error {
  readonly status: number;
  /** The last part of the problem's type: `count-changed`, `not-logged-in`; `unreachable` is ours. */
  readonly kind: string;
  readonly remedy: string;
  readonly faults: readonly Fault[];
  /** How many letters match now, of `count-changed`. */
  readonly letters: number | null;
  /** The edit that stands now, and what changed since, of `edited-meanwhile`. */
  readonly edit: number;
  readonly diff: readonly string[];

  constructor(status: number, kind: string, detail: string, document?: Partial<ProblemDocument>) {
    super(detail);
    this.name = "Problem";
    this.status = status;
    this.kind = kind;
    this.remedy = document?.remedy ?? "";
    this.faults = document?.errors ?? [];
    this.letters = document?.letters ?? null;
    this.edit = document?.edit ?? 0;
    this.diff = document?.diff ?? [];
  }

  /** Nobody answered. */
  get unreachable(): boolean {
    return this.kind === UNREACHABLE;
  }

  /** The first try of this request has no answer. */
  get underWay(): boolean {
    return this.kind === UNDER_WAY;
  }

  /** Whether what is shown may be no longer so: somebody else, or the first try, has changed it. */
  get overtaken(): boolean {
    return this.underWay || /^(edited|noted)-meanwhile$/.test(this.kind);
  }

  /** Whether it is certain that the request did nothing: refused, and not cut off on its way. */
  get settled(): boolean {
    return this.status >= 400 && this.status < 500 && !this.underWay;
  }

  /** Whether the same request may work a moment later. */
  get passing(): boolean {
    return this.unreachable || this.status === 503;
  }
}

export async function problemOf(answer: Response): Promise<Problem> {
  const type = answer.headers.get("Content-Type") ?? "";
  if (type.startsWith("application/problem+json")) {
    const document = (await answer.json()) as ProblemDocument;
    const kind = document.type.replace(KIND, "");
    if (kind === UNDER_WAY) return underWay(answer.status);
    return new Problem(answer.status, kind, document.detail, document);
  }
  return new Problem(answer.status, "failed", `The server answered ${answer.status}.`);
}

/** Nobody answered. What only reads is asked again by itself; a change waits for a person. */
export function unreachable(reads: boolean): Problem {
  const remedy = reads
    ? "What is shown here is asked again as soon as it answers; else try once more."
    : "What you wrote is kept. Look whether it was done, and try once more, when it answers.";
  return new Problem(0, UNREACHABLE, "The server cannot be reached.", { remedy });
}

/** The API speaks of keys here, which people do not see. */
function underWay(status: number): Problem {
  const remedy = "Try once more in a moment. If it stays so, look whether it was done before you open this anew.";
  return new Problem(status, UNDER_WAY, "The first try is still running, or was cut off.", { remedy });
}

export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(0, "failed", error instanceof Error ? error.message : String(error));
}
