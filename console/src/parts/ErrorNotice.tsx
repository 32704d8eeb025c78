import { useEffect, useRef, type ReactNode } from "react";
import { useConnection } from "../api/connection";
import { asProblem } from "../api/problem";
import { Button } from "./Button";
import styles from "./ErrorNotice.module.css";
import { Icon } from "./Icon";

interface ErrorNoticeProps {
  error: unknown;
  retry?: (() => void) | undefined;
  /** Whoever is told goes on from here: for what stands far from the button that led to it. */
  takesFocus?: boolean;
  /** More on it. */
  children?: ReactNode;
}

/** What went wrong and what to do. It stands beside what was typed and never replaces it; in a dialog
 * that is longer than the window it is brought into view. */
export function ErrorNotice({ error, retry, takesFocus = false, children }: ErrorNoticeProps) {
  const problem = asProblem(error);
  const faults = problem.faults.length > 1 ? problem.faults : [];
  // It may be older than the moment in which somebody reads it.
  const back = useConnection() !== "away" && problem.unreachable;
  const message = back ? "The server could not be reached." : problem.message;
  const remedy = back ? "It answers again: try once more." : problem.remedy;
  const notice = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = notice.current;
    if (!element?.closest("dialog")) return;
    if (takesFocus) element.focus({ preventScroll: true });
    element.scrollIntoView({ block: "nearest" });
  }, [error, takesFocus]);
  return (
    <div ref={notice} className={styles.notice} role="alert" tabIndex={takesFocus ? -1 : undefined}>
      <Icon name="warning" />
      <div className={styles.text}>
        <strong>{sentence(message)}</strong>
        {faults.length > 0 && (
          <ul>
            {faults.map((fault) => (
              <li key={fault.where + fault.what}>
                {sentence(`${fault.name}: ${fault.what}`)}
              </li>
            ))}
          </ul>
        )}
        {remedy && <span>{sentence(remedy)}</span>}
        {children}
      </div>
      {retry && (
        <Button icon="replays" onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** The API speaks in half sentences; on a page they begin large and end with a full stop. */
export function sentence(text: string): string {
  const trimmed = text.trim();
  const begun = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}
