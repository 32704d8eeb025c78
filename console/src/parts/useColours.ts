// The colours of `tokens.css` as the page shows them now, for what is drawn on a canvas.
import { useEffect, useMemo, useState } from "react";
import { useTheme } from "../shell/theme";

const dark = window.matchMedia("(prefers-color-scheme: dark)");

export function useColours<Name extends string>(names: readonly Name[]): Record<Name, string> {
  const theme = useTheme();
  const [system, setSystem] = useState(dark.matches);
  useEffect(() => {
    const listener = () => setSystem(dark.matches);
    dark.addEventListener("change", listener);
    return () => dark.removeEventListener("change", listener);
  }, []);
  const listed = names.join(" ");
  return useMemo(() => {
    const probe = document.createElement("span");
    document.body.append(probe);
    const read = (name: string) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    const found = Object.fromEntries(listed.split(" ").map((name) => [name, read(name)]));
    probe.remove();
    return found as Record<Name, string>;
    // The theme says when to read them again.
  }, [listed, theme, system]);
}
