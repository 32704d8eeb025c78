// Light, dark, or as the system has it. `public/theme.js` sets it before the first paint.
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const KEPT = "redrive-theme";
const listeners = new Set<() => void>();

function read(): Theme {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : "system";
}

export function setTheme(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(KEPT, theme);
  } catch {
    // Storage is off: it holds until the page is left.
  }
  for (const listener of listeners) listener();
}

export function useTheme(): Theme {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, read);
}
