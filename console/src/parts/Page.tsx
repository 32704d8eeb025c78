// What every screen stands in: its title, a line on it, its actions, and its content.
import { useEffect, type ReactNode } from "react";
import { useConnection } from "../api/connection";
import styles from "./Page.module.css";

interface PageProps {
  title: ReactNode;
  /** Of the browser's tab, where the title is not a text. */
  name?: string;
  about?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  /** Fills the height of the window, and scrolls inside. */
  fills?: boolean;
}

export function Page({ title, name, about, actions, children, fills }: PageProps) {
  const tab = name ?? (typeof title === "string" ? title : "");
  useEffect(() => {
    document.title = tab ? `${tab} · Redrive` : "Redrive";
  }, [tab]);
  return (
    <main className={`${styles.page} ${fills ? styles.fills : ""}`} id="content" tabIndex={-1}>
      <header className={styles.header}>
        <div className={styles.words}>
          <h1>{title}</h1>
          {about && <div className={styles.about}>{about}</div>}
        </div>
        {actions && <div className={styles.actions}>{actions}</div>}
      </header>
      {children}
    </main>
  );
}

/** A part of a screen with a title of its own. */
export function Section(props: { title: string; actions?: ReactNode; children: ReactNode; flush?: boolean }) {
  return (
    <section className={styles.section} aria-label={props.title}>
      <header className={styles.sectionHeader}>
        <h2>{props.title}</h2>
        {props.actions && <div className={styles.actions}>{props.actions}</div>}
      </header>
      <div className={props.flush ? styles.flush : styles.inside}>{props.children}</div>
    </section>
  );
}

/** Stands for what is being read: so many grey lines, and why it takes long if the server is away. */
export function Waiting({ lines = 6 }: { lines?: number }) {
  const away = useConnection() === "away";
  return (
    <div className={styles.waiting} role="status">
      {away ? (
        <p className={styles.away}>The server cannot be reached. This is shown as soon as it answers.</p>
      ) : (
        <span className="unseen">Reading…</span>
      )}
      {Array.from({ length: lines }, (_, line) => (
        <span key={line} className={styles.line} aria-hidden="true" />
      ))}
    </div>
  );
}
