// The frame of every screen: navigation at the side, or behind a button at phone width.
import { useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { useConnection } from "../api/connection";
import { useMay, useMe } from "../api/session";
import { Button } from "../parts/Button";
import { Icon } from "../parts/Icon";
import { screens, type Screen } from "../screens/screens";
import { ShortcutHelp } from "../shortcuts/ShortcutHelp";
import { useShortcut } from "../shortcuts/shortcuts";
import { AlertMark, AlertMarkLink } from "./AlertMark";
import { Drawer } from "./Drawer";
import { LogOut } from "./LogOut";
import styles from "./Shell.module.css";
import { ThemeToggle } from "./ThemeToggle";

export function Shell({ children }: { children: ReactNode }) {
  const [open, setOpen] = useState(false);
  return (
    <div className={styles.shell}>
      <a className={styles.skip} href="#content">
        Skip to the content
      </a>
      <aside className={styles.side}>
        <Navigation />
      </aside>
      <header className={styles.bar}>
        <Button kind="quiet" icon="menu" iconOnly onClick={() => setOpen(true)}>
          Menu
        </Button>
        <Brand />
        <LiveMark />
        <AlertMarkLink />
      </header>
      {open && (
        <Drawer label="Menu" onClose={() => setOpen(false)}>
          <Navigation onChosen={() => setOpen(false)} />
        </Drawer>
      )}
      <div className={styles.content}>{children}</div>
    </div>
  );
}

function Navigation({ onChosen }: { onChosen?: () => void }) {
  const me = useMe();
  const operator = useMay("operator");
  const admin = useMay("admin");
  const shown = screens.filter(
    ({ role }) => role === undefined || role === "viewer" || (role === "operator" ? operator : admin),
  );
  return (
    <div className={styles.navigation}>
      <Brand />
      <nav aria-label="Screens">
        <ul className={styles.links}>
          {shown.map((screen) => screen.nav && <NavLink key={screen.path} screen={screen} onChosen={onChosen} />)}
        </ul>
      </nav>
      <div className={styles.foot}>
        <LiveMark />
        {me.login !== "none" && (
          <span className={styles.me}>
            <Icon name="user" size={16} />
            <span>
              {me.name} <small>{me.role}</small>
            </span>
          </span>
        )}
        <div className={styles.tools}>
          <ThemeToggle />
          <ShortcutHelp />
          {me.login === "session" && <LogOut />}
        </div>
      </div>
    </div>
  );
}

function NavLink({ screen, onChosen }: { screen: Screen; onChosen?: (() => void) | undefined }) {
  const [location, go] = useLocation();
  const nav = screen.nav!;
  const here = location === screen.path || (screen.path !== "/" && location.startsWith(`${screen.path}/`));
  useShortcut(`g ${nav.key}`, `Go to ${nav.label}`, () => go(screen.path));
  return (
    <li>
      <Link href={screen.path} className={styles.link} aria-current={here ? "page" : undefined} onClick={onChosen}>
        <Icon name={nav.icon} />
        {nav.label}
        {screen.path === "/" && <AlertMark />}
      </Link>
    </li>
  );
}

function Brand() {
  return (
    <Link href="/" className={styles.brand}>
      <img src="/icon.svg" alt="" width="26" height="26" />
      Redrive
    </Link>
  );
}

function LiveMark() {
  const connection = useConnection();
  const text = {
    connecting: "Connecting…",
    live: "Live",
    away: "Server away, trying again",
  }[connection];
  return (
    <span className={`${styles.mark} ${styles[connection]}`} role="status">
      {text}
    </span>
  );
}
