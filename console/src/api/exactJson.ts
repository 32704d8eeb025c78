// JSON without loss: what JSON.parse would round becomes a bigint. Header values may be 64 bits wide.

type Reviver = (key: string, value: unknown, context?: { source?: string }) => unknown;

const exact: Reviver = (_key, value, context) => {
  const source = context?.source;
  if (typeof value !== "number" || source === undefined || Number.isSafeInteger(value)) return value;
  return /^-?\d+$/.test(source) ? BigInt(source) : value;
};

export function parseExactly(text: string): unknown {
  return JSON.parse(text, exact as (key: string, value: unknown) => unknown);
}

/** A value of a header or property as text, whatever is in it. */
export function written(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map(quoted).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    const parts = Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${quoted(each)}`);
    return `{${parts.join(", ")}}`;
  }
  return String(value);
}

function quoted(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : written(value);
}
