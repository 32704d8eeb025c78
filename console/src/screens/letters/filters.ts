// The filters of letters as the address has them. The names are the API's, so that an address of the
// console and a query of the API say the same.
import { useMemo } from "react";
import { STATES, type LettersQuery, type Selection, type State } from "../../api/documents";
import { useUrlState } from "../../parts/useUrlState";

/** Filters with a field of their own; `status` and `search` stand apart. */
export const FIELDS = [
  { name: "errorType", label: "Error type", hint: "TIMEOUT*" },
  { name: "errorReason", label: "Reason", hint: "*no such currency*" },
  { name: "queue", label: "Queue", hint: "orders" },
  { name: "exchange", label: "Exchange", hint: "shop" },
  { name: "routingKey", label: "Routing key", hint: "order.*" },
  { name: "group", label: "Group", hint: "a fingerprint" },
  { name: "source", label: "Source", hint: "billing" },
  { name: "tag", label: "Tag", hint: "vip" },
  { name: "startDate", label: "Arrived from", hint: "2026-02-11, or 2h" },
  { name: "endDate", label: "Arrived until", hint: "2026-02-11, or 10m" },
  { name: "minAge", label: "At least so old", hint: "10m" },
] as const;

export type FieldName = (typeof FIELDS)[number]["name"];

export interface LetterFilters {
  /** As a query of the list. */
  query: LettersQuery;
  /** As the body of a bulk action. */
  selection: Selection;
  status: readonly State[];
  search: string;
  values: Partial<Record<FieldName, string>>;
  ids: readonly string[];
  any: boolean;
  /** Equal texts are equal filters. */
  text: string;
  set: ReturnType<typeof useUrlState>["set"];
  clear: () => void;
}

export function useLetterFilters(): LetterFilters {
  const url = useUrlState();
  const read = useMemo(() => readFilters(new URLSearchParams(url.text)), [url.text]);
  return {
    ...read,
    set: url.set,
    clear: () =>
      url.set(Object.fromEntries([...FIELDS.map(({ name }) => name), "status", "search", "id"].map((n) => [n, null]))),
  };
}

export function readFilters(parameters: URLSearchParams): Omit<LetterFilters, "set" | "clear"> {
  const status = STATES.filter((state) =>
    parameters.getAll("status").some((each) => each === state || `dlq_${each}` === state),
  );
  const ids = parameters.getAll("id");
  const search = parameters.get("search") ?? "";
  const values: Partial<Record<FieldName, string>> = {};
  for (const { name } of FIELDS) {
    const value = parameters.get(name);
    if (value) values[name] = value;
  }
  const selection: Selection = {
    ...values,
    ...(status.length > 0 ? { status: [...status] } : {}),
    ...(search ? { search } : {}),
    ...(ids.length > 0 ? { id: ids } : {}),
  };
  return {
    query: selection,
    selection,
    status,
    search,
    values,
    ids,
    any: Object.keys(selection).length > 0,
    text: JSON.stringify(selection),
  };
}

/** The query part of an address that shows these letters. */
export function addressOfFilters(selection: Selection): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(selection)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each) query.append(name, String(each).replace(/^dlq_/, ""));
    }
  }
  return query.size > 0 ? `?${query}` : "";
}
