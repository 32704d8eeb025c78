// The value of a header as text: tables and arrays on lines of their own, with the types inside.
import type { Header } from "../../api/documents";
import { written } from "../../api/exactJson";

type Typed = { name?: string; type: string; value: unknown };

export function headerText(header: Header): string {
  return typedText(header, 0);
}

function typedText({ type, value }: Typed, depth: number): string {
  if ((type !== "table" && type !== "array") || !Array.isArray(value)) return written(value);
  if (value.length === 0) return type === "table" ? "{}" : "[]";
  const indent = "  ".repeat(depth);
  const lines = (value as Typed[]).map((each) => {
    const inside = typedText(each, depth + 1);
    const nested = Array.isArray(each.value) && each.value.length > 0;
    const head = type === "table" ? `${each.name} (${each.type}):` : `- (${each.type})`;
    return `${indent}${head}${nested ? "\n" : " "}${inside}`;
  });
  return lines.join("\n");
}
