import { Button } from "../parts/Button";
import { setTheme, useTheme, type Theme } from "./theme";

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const ICONS = { system: "screen", light: "sun", dark: "moon" } as const;

export function ThemeToggle() {
  const theme = useTheme();
  return (
    <Button kind="quiet" icon={ICONS[theme]} iconOnly onClick={() => setTheme(NEXT[theme])}>
      {`Theme: ${theme}`}
    </Button>
  );
}
