import { useState } from "react";
import { post } from "../../api/client";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Field, inputClass } from "../../parts/Field";

/** Nothing is to be sent to a queue for now, whatever its breaker would say. */
export function HoldBreaker({ onClose }: { onClose: () => void }) {
  const [queue, setQueue] = useState("");
  const holding = useChange({
    change: (name: string, key) => post("/api/v1/breakers/force", { queue: name, position: "open" }, {}, { key }),
    touches: [["breakers"]],
    done: (_, name) => `${name} is held open`,
    then: onClose,
  });
  return (
    <Dialog
      title="Hold a queue"
      onClose={onClose}
      onSubmit={() => {
        if (queue.trim() && !holding.busy) holding.make(queue.trim());
      }}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="main" type="submit" icon="pause" busy={holding.busy} disabled={!queue.trim()}>
            Hold it
          </Button>
        </>
      }
    >
      <p>Its breaker is held open: no worker and no replay sends letters there until somebody releases it.</p>
      <Field label="Queue" hint="As the broker has it.">
        {(ids) => (
          <input
            {...ids}
            className={inputClass}
            autoFocus
            maxLength={255}
            spellCheck={false}
            autoCapitalize="none"
            value={queue}
            onChange={(event) => setQueue(event.target.value)}
          />
        )}
      </Field>
      {holding.problem && <ErrorNotice error={holding.problem} />}
    </Dialog>
  );
}
