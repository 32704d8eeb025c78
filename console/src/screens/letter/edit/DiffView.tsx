import styles from "./EditDialog.module.css";

/** A unified difference: what goes, what comes. The signs say it too, not only the colours. */
export function DiffView({ lines, label = "Difference" }: { lines: readonly string[]; label?: string }) {
  if (lines.length === 0) return <p>Nothing would change: it is so already.</p>;
  return (
    <pre className={styles.diff} tabIndex={0} aria-label={label}>
      {lines.map((line, index) => (
        <span key={index} className={classOf(line)}>
          {line || " "}
        </span>
      ))}
    </pre>
  );
}

function classOf(line: string): string {
  if (line.startsWith("@@")) return styles.place ?? "";
  if (line.startsWith("+")) return styles.added ?? "";
  if (line.startsWith("-")) return styles.gone ?? "";
  return "";
}
