import { asProblem } from "../api/problem";
import { Button } from "./Button";
import styles from "./ErrorNotice.module.css";
import { Icon } from "./Icon";

/** What went wrong and what to do. It stands beside what was typed and never replaces it. */
export function ErrorNotice({ error, retry }: { error: unknown; retry?: (() => void) | undefined }) {
  const problem = asProblem(error);
  const faults = problem.faults.length > 1 ? problem.faults : [];
  return (
    <div className={styles.notice} role="alert">
      <Icon name="warning" />
      <div className={styles.text}>
        <strong>{sentence(problem.message)}</strong>
        {faults.length > 0 && (
          <ul>
            {faults.map((fault) => (
              <li key={fault.where + fault.what}>
                {sentence(`${fault.name}: ${fault.what}`)}
              </li>
            ))}
          </ul>
        )}
        {problem.remedy && <span>{sentence(problem.remedy)}</span>}
        {problem.status === 0 && problem.kind === "unreachable" && !retry && <span>It is tried again as soon as the server answers.</span>}
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
