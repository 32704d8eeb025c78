import { useState } from "react";
import { put } from "../../api/client";
import type { Policy } from "../../api/documents";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { checkClass, Field, inputClass } from "../../parts/Field";

/** A policy of the database: a new one, another value of one, or one that overrides the file's. */
export function PolicyDialog({ policy, onClose }: { policy: Policy | null; onClose: () => void }) {
  const [name, setName] = useState(policy?.name ?? "");
  const [retries, setRetries] = useState(String(policy?.maxRetries ?? 3));
  const [toExchange, setToExchange] = useState(policy?.returnTo === "exchange");
  const [expired, setExpired] = useState(policy?.retryExpired ?? false);
  const saving = useChange({
    change: (given: { name: string; maxRetries: number; returnTo: "queue" | "exchange"; retryExpired: boolean }, key) =>
      put("/api/v1/policies", given, {}, { key }),
    touches: [["policies"]],
    done: (result) => `Policy ${result.name} ${result.outcome}`,
    then: onClose,
  });
  const ready = name.trim() !== "" && retries.trim() !== "";
  const overrides = policy !== null && policy.source !== "database";
  return (
    <Dialog
      title={policy === null ? "Add a policy" : overrides ? `Override ${policy.name}` : `Change ${policy.name}`}
      onClose={onClose}
      onSubmit={() => {
        if (!ready || saving.busy) return;
        saving.make({
          name: name.trim(),
          maxRetries: Number(retries),
          returnTo: toExchange ? "exchange" : "queue",
          retryExpired: expired,
        });
      }}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="main" type="submit" busy={saving.busy} disabled={!ready}>
            {policy === null ? "Add" : "Save"}
          </Button>
        </>
      }
    >
      {overrides && <p>One of this name in the database counts more than the one in the file.</p>}
      <Field label="Routing key" hint="Exact, or with * for one word and # for any number of words.">
        {(ids) => (
          <input
            {...ids}
            className={inputClass}
            autoFocus={policy === null}
            readOnly={policy !== null}
            maxLength={100}
            spellCheck={false}
            autoCapitalize="none"
            placeholder="order.*"
            value={name}
            onChange={(event) => setName(event.target.value)}
          />
        )}
      </Field>
      <Field label="Max retries" hint="0: straight to the dead letter queue.">
        {(ids) => (
          <input
            {...ids}
            className={inputClass}
            type="number"
            min={0}
            autoFocus={policy !== null}
            value={retries}
            onChange={(event) => setRetries(event.target.value)}
          />
        )}
      </Field>
      <label className={checkClass}>
        <input type="checkbox" checked={toExchange} onChange={(event) => setToExchange(event.target.checked)} />
        Return to the exchange, where every queue that is bound gets it again
      </label>
      <label className={checkClass}>
        <input type="checkbox" checked={expired} onChange={(event) => setExpired(event.target.checked)} />
        Retry messages that expired in their own queue, too
      </label>
      {saving.problem && <ErrorNotice error={saving.problem} />}
    </Dialog>
  );
}
