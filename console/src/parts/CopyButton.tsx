import { useState } from "react";
import { Button } from "./Button";

/** Copies a text, and says so for a moment. */
export function CopyButton({ text, what, label }: { text: string | (() => string); what: string; label?: string }) {
  const [copied, setCopied] = useState<"no" | "yes" | "failed">("no");
  const copy = async () => {
    const worked = await copyText(typeof text === "string" ? text : text());
    setCopied(worked ? "yes" : "failed");
    window.setTimeout(() => setCopied("no"), 1800);
  };
  const name = { no: label ?? `Copy ${what}`, yes: "Copied", failed: "The browser refused" }[copied];
  return (
    <Button kind="quiet" icon={copied === "yes" ? "check" : "copy"} iconOnly={!label} onClick={() => void copy()}>
      {name}
    </Button>
  );
}

async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
