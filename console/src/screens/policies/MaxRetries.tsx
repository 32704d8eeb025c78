// The number of retries, changed in place: type, Enter. What is typed stays if it is refused.
import { useState } from "react";
import { put } from "../../api/client";
import type { Policy } from "../../api/documents";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { inputClass } from "../../parts/Field";
import { counted } from "../../parts/numbers";
import styles from "./Policies.module.css";

export function MaxRetries({ policy }: { policy: Policy }) {
  const kept = policy.maxRetries === null ? "" : String(policy.maxRetries);
  const [typed, setTyped] = useState<string | null>(null);
  const shown = typed ?? kept;
  const saving = useChange({
    change: (maxRetries: number, key) => put("/api/v1/policies", { name: policy.name, maxRetries }, {}, { key }),
    touches: [["policies"]],
    done: (_, number) => `${policy.name}: ${counted(number, "retry", "retries")}`,
    then: () => setTyped(null),
  });
  const changed = shown !== kept && shown.trim() !== "";
  return (
    <form
      className={styles.retries}
      onSubmit={(event) => {
        event.preventDefault();
        if (changed && !saving.busy) saving.make(Number(shown));
      }}
    >
      <input
        className={inputClass}
        type="number"
        min={0}
        max={1000}
        aria-label={`Max retries of ${policy.name}`}
        placeholder="default"
        value={shown}
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") setTyped(null);
        }}
      />
      {changed && (
        <Button type="submit" icon="check" iconOnly busy={saving.busy}>
          Save
        </Button>
      )}
      {saving.problem && <ErrorNotice error={saving.problem} />}
    </form>
  );
}
