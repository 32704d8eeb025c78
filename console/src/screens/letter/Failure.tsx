import { useState } from "react";
import type { Letter } from "../../api/documents";
import { Button } from "../../parts/Button";
import { CopyButton } from "../../parts/CopyButton";
import { Section } from "../../parts/Page";
import styles from "./Failure.module.css";

const FIRST_LINES = 14;

export function Failure({ letter }: { letter: Letter }) {
  const [whole, setWhole] = useState(false);
  const lines = letter.errorStack?.split("\n") ?? [];
  const shown = whole ? lines : lines.slice(0, FIRST_LINES);
  return (
    <Section
      title="Failure"
      actions={letter.errorStack && <CopyButton text={letter.errorStack} what="the stack" />}
      flush
    >
      <p className={styles.reason}>{letter.errorReason || "No reason was given."}</p>
      {lines.length > 0 && (
        <pre className={styles.stack} tabIndex={0} aria-label="Stack">
          {shown.join("\n")}
        </pre>
      )}
      {lines.length > FIRST_LINES && (
        <div className={styles.more}>
          <Button kind="quiet" onClick={() => setWhole(!whole)}>
            {whole ? "Show less" : `Show all ${lines.length} lines`}
          </Button>
        </div>
      )}
    </Section>
  );
}
