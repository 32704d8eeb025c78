// Calls of the API, typed by its OpenAPI document. A path or a field that the server no longer has
// does not compile.
//
// Every change carries the session's CSRF token and an Idempotency-Key: sent twice, it is done once,
// except for logins and users, whose keys the server does not keep. Those end alike if done twice.
// Whatever fails is thrown as a Problem; one of the session is also told to `whenLoggedOut`.
import { answered, isOfAnother, unanswered } from "./connection";
import { parseExactly } from "./exactJson";
import { Problem, problemOf, unreachable } from "./problem";
import type { paths } from "./schema";

type Method = "get" | "post" | "put" | "delete";

type Having<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never;
}[keyof paths];

type Operation<P extends keyof paths, M extends Method> = M extends keyof paths[P] ? paths[P][M] : never;

type JsonOf<T> = T extends { content: { "application/json": infer Document } } ? Document : undefined;

export type Answer<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { responses: infer R }
    ? 200 extends keyof R
      ? JsonOf<R[200]>
      : 201 extends keyof R
        ? JsonOf<R[201]>
        : undefined
    : never;

type ParametersOf<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { parameters: infer Given } ? Given : never;

type Part<T, K extends string> = K extends keyof T
  ? NonNullable<T[K]> extends never
    ? unknown
    : { [Name in K]?: NonNullable<T[K]> }
  : unknown;

export type Sent<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { requestBody: { content: { "application/json": infer Body } } }
    ? Body
    : undefined;

type Where<P extends keyof paths, M extends Method> = object & Part<ParametersOf<P, M>, "path"> &
  Part<ParametersOf<P, M>, "query">;

export interface Reading {
  signal?: AbortSignal;
  /** Integers beyond 2^53 become `bigint` instead of being rounded. Slower: for single documents. */
  exactly?: boolean;
}

interface Changing {
  /** The same for every try of one change; see `useChange`. Null: it changes nothing. */
  key: string | null;
}

/** What changes something carries it, and nothing else does. */
const KEY = "Idempotency-Key";

let csrfToken: string | null = null;
const listeners = new Set<() => void>();

export function setCsrfToken(token: string | null): void {
  csrfToken = token;
}

/** Have it told when the server no longer knows who calls, or only by a session that is new here. */
export function whenLoggedOut(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function newKey(): string {
  // randomUUID is there on https and on localhost only.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export async function get<P extends Having<"get">>(
  path: P,
  where: Where<P, "get"> = {} as Where<P, "get">,
  reading: Reading = {},
): Promise<Answer<P, "get">> {
  const init: RequestInit = reading.signal ? { signal: reading.signal } : {};
  const answer = await call(addressOf(path, where), init);
  const text = await answer.text();
  return (reading.exactly ? parseExactly(text) : JSON.parse(text)) as Answer<P, "get">;
}

export function post<P extends Having<"post">>(
  path: P,
  body: Sent<P, "post">,
  where: Where<P, "post"> = {} as Where<P, "post">,
  changing: Partial<Changing> = {},
): Promise<Answer<P, "post">> {
  return change("post", path, where, body, changing) as Promise<Answer<P, "post">>;
}

/** A question that is too long for an address: a preview, a dry run. Nothing is changed by it. */
export function ask<P extends Having<"post">>(
  path: P,
  body: Sent<P, "post">,
  where: Where<P, "post"> = {} as Where<P, "post">,
  signal?: AbortSignal,
): Promise<Answer<P, "post">> {
  return change("post", path, where, body, { key: null }, signal) as Promise<Answer<P, "post">>;
}

export function put<P extends Having<"put">>(
  path: P,
  body: Sent<P, "put">,
  where: Where<P, "put"> = {} as Where<P, "put">,
  changing: Partial<Changing> = {},
): Promise<Answer<P, "put">> {
  return change("put", path, where, body, changing) as Promise<Answer<P, "put">>;
}

export function remove<P extends Having<"delete">>(
  path: P,
  where: Where<P, "delete"> = {} as Where<P, "delete">,
  changing: Partial<Changing> = {},
): Promise<Answer<P, "delete">> {
  return change("delete", path, where, undefined, changing) as Promise<Answer<P, "delete">>;
}

/** Where the API has something, for links and downloads. */
export function addressOf(path: string, where: object): string {
  const parts = where as { path?: Record<string, string>; query?: Record<string, unknown> };
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(parts.path?.[name] ?? ""),
  );
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parts.query ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") query.append(name, String(each));
    }
  }
  return query.size > 0 ? `${filled}?${query}` : filled;
}

async function change(
  method: Method,
  path: string,
  where: object,
  body: unknown,
  changing: Partial<Changing>,
  signal?: AbortSignal,
): Promise<unknown> {
  const headers: Record<string, string> = {};
  if (changing.key !== null) headers[KEY] = changing.key ?? newKey();
  if (csrfToken !== null) headers["X-CSRF-Token"] = csrfToken;
  const init: RequestInit = { method: method.toUpperCase(), headers };
  if (signal) init.signal = signal;
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  const answer = await call(addressOf(path, where), init);
  return answer.status === 204 ? undefined : answer.json();
}

async function call(address: string, init: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(address, { credentials: "same-origin", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw notReached(init);
  }
  if (isOfAnother(answer)) throw notReached(init);
  answered();
  if (answer.ok) return answer;
  const problem: Problem = await problemOf(answer);
  // `csrf`: somebody has logged in anew in another window, which has the cookie in common with this.
  if (/^(not-logged-in|csrf)$/.test(problem.kind)) for (const listener of listeners) listener();
  throw problem;
}

function notReached(init: RequestInit): Problem {
  unanswered();
  return unreachable(!new Headers(init.headers).has(KEY));
}
