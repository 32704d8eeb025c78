// What went wrong, as the API tells it (RFC 9457), or as the network does. One class, so that every
// screen shows every failure the same way.
import type { components } from "./schema";

type ProblemDocument = components["schemas"]["Problem"];
type Fault = components["schemas"]["Fault"];

const KIND = "urn:redrive:problem:";

export class Problem extends Error {
  readonly status: number;
  /** The last part of the problem's type: `count-changed`, `not-logged-in`; `unreachable` is ours. */
  readonly kind: string;
  readonly remedy: string;
  readonly faults: readonly Fault[];
  /** How many letters match now, of `count-changed`. */
  readonly letters: number | null;

  constructor(status: number, kind: string, detail: string, document?: ProblemDocument) {
    super(detail);
    this.name = "Problem";
    this.status = status;
    this.kind = kind;
    this.remedy = document?.remedy ?? "";
    this.faults = document?.errors ?? [];
    this.letters = document?.letters ?? null;
  }

  /** Whether the same request may work a moment later. */
  get passing(): boolean {
    return this.status === 0 || this.status === 503;
  }
}

export async function problemOf(answer: Response): Promise<Problem> {
  const type = answer.headers.get("Content-Type") ?? "";
  if (type.startsWith("application/problem+json")) {
    const document = (await answer.json()) as ProblemDocument;
    return new Problem(answer.status, document.type.replace(KIND, ""), document.detail, document);
  }
  return new Problem(answer.status, "failed", `The server answered ${answer.status}.`);
}

export function unreachable(): Problem {
  return new Problem(0, "unreachable", "The server cannot be reached.");
}

export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(0, "failed", error instanceof Error ? error.message : String(error));
}
