// What is chosen on a screen lives in its address: it can be sent to somebody, and Back works.
import { useCallback } from "react";
import { useSearchParams } from "wouter";

export type UrlState = Readonly<Record<string, readonly string[]>>;

interface UrlValues {
  /** All values of a name; none is an empty list. */
  all: (name: string) => readonly string[];
  /** The first value of a name, or an empty text. */
  one: (name: string) => string;
  /** Set names to a value, to several, or to nothing; others stay. `replace`: no step for Back. */
  set: (values: Record<string, string | readonly string[] | null>, options?: { replace?: boolean }) => void;
  /** The query as text, for keys. */
  text: string;
}

export function useUrlState(): UrlValues {
  const [parameters, setParameters] = useSearchParams();
  const set = useCallback<UrlValues["set"]>(
    (values, options) =>
      setParameters((before) => {
        const after = new URLSearchParams(before);
        for (const [name, value] of Object.entries(values)) {
          after.delete(name);
          for (const each of value === null ? [] : typeof value === "string" ? [value] : value) {
            if (each !== "") after.append(name, each);
          }
        }
        return after;
      }, { replace: options?.replace ?? false }),
    [setParameters],
  );
  return {
    all: (name) => parameters.getAll(name),
    one: (name) => parameters.get(name) ?? "",
    set,
    text: parameters.toString(),
  };
}
