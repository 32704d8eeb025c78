// The filters of letters as the address has them. The names are the API's, so that an address of the
// console and a query of the API say the same. What cannot be meant is a fault: left out, it would
// choose more letters than somebody wanted.
import { useMemo } from "react";
import { STATES, wordOf, type LettersQuery, type Selection, type State } from "../../api/documents";
import { useUrlState } from "../../parts/useUrlState";

/** Filters with a field of their own; `status`, `search` and `possibleDuplicate` stand apart. */
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
  /** Only letters that may be a second copy of another. */
  possibleDuplicate: boolean;
  values: Partial<Record<FieldName, string>>;
  ids: readonly string[];
  any: boolean;
  /** What is wrong with the address, in words. With any of them no letter is chosen. */
  faults: readonly string[];
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
    clear: () => url.set(Object.fromEntries([...new URLSearchParams(url.text).keys()].map((name) => [name, null]))),
  };
}

export function readFilters(parameters: URLSearchParams): Omit<LetterFilters, "set" | "clear"> {
  const status = STATES.filter((state) => parameters.getAll("status").some((each) => isState(each, state)));
  const ids = parameters.getAll("id");
  const search = parameters.get("search") ?? "";
  const possibleDuplicate = parameters.get(COPIES) === "true";
  const values: Partial<Record<FieldName, string>> = {};
  for (const { name } of FIELDS) {
    const value = parameters.get(name);
    if (value) values[name] = value;
  }
  const selection: Selection = {
    ...values,
    ...(status.length > 0 ? { status: [...status] } : {}),
    ...(search ? { search } : {}),
    ...(possibleDuplicate ? { possibleDuplicate } : {}),
    ...(ids.length > 0 ? { id: ids } : {}),
  };
  return {
    query: selection,
    selection,
    status,
    search,
    possibleDuplicate,
    values,
    ids,
    any: Object.keys(selection).length > 0,
    faults: faultsOf(parameters),
    text: JSON.stringify(selection),
  };
}

const MANY: readonly string[] = ["status", "id"];
const COPIES = "possibleDuplicate";
const KNOWN: readonly string[] = [...MANY, "search", COPIES, ...FIELDS.map(({ name }) => name)];

function isState(word: string, state: State): boolean {
  return word === state || `dlq_${word}` === state;
}

function faultsOf(parameters: URLSearchParams): string[] {
  const faults: string[] = [];
  for (const name of new Set(parameters.keys())) {
    const values = parameters.getAll(name);
    const called = name === COPIES ? "Possible duplicates" : (FIELDS.find((field) => field.name === name)?.label ?? name);
    if (!KNOWN.includes(name)) faults.push(`There is no filter "${name}".`);
    else if (values.some((value) => value === "")) faults.push(`The filter "${called}" is empty.`);
    else if (values.length > 1 && !MANY.includes(name)) faults.push(`The filter "${called}" is there twice.`);
    else if (name === COPIES && values[0] !== "true") faults.push(`The filter "${called}" can only be "true".`);
  }
  for (const word of parameters.getAll("status")) {
    if (word.trim() === "" || STATES.some((state) => isState(word, state))) continue;
    faults.push(`There is no state "${word}": letters are ${STATES.map(wordOf).join(", ")}.`);
  }
  return faults;
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
