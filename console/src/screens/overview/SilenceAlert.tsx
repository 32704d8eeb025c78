import { useState } from "react";
import { post } from "../../api/client";
import { alertsKey } from "../../api/useAlerts";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Field, inputClass } from "../../parts/Field";
import { ReasonField } from "../../parts/ReasonField";

const TIMES = [
  { value: "30m", text: "30 minutes" },
  { value: "1h", text: "1 hour" },
  { value: "2h", text: "2 hours" },
  { value: "4h", text: "4 hours" },
  { value: "8h", text: "8 hours" },
  { value: "1d", text: "1 day" },
  { value: "3d", text: "3 days" },
  { value: "7d", text: "1 week" },
] as const;

const USUAL = "2h";

/** Nobody is to be told of an alert for a while. */
export function SilenceAlert({ name, onClose }: { name: string; onClose: () => void }) {
  const [lasts, setLasts] = useState<string>(USUAL);
  const [reason, setReason] = useState("");
  const silencing = useChange({
    change: (given: { for: string; reason: string }, key) =>
      post("/api/v1/alerts/silence", { name, ...given }, {}, { key }),
    touches: [alertsKey],
    done: () => `${name} is silenced`,
    then: onClose,
  });
  return (
    <Dialog
      title={`Silence ${name}`}
      onClose={onClose}
      onSubmit={() => {
        if (!silencing.busy) silencing.make({ for: lasts, reason: reason.trim() });
      }}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="main" type="submit" busy={silencing.busy}>
            Silence it
          </Button>
        </>
      }
    >
      <p>Nobody is told of it meanwhile. If it still fires when the silence ends, it is told then.</p>
      <Field label="For">
        {(ids) => (
          <select {...ids} className={inputClass} value={lasts} onChange={(event) => setLasts(event.target.value)}>
            {TIMES.map(({ value, text }) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
        )}
      </Field>
      <ReasonField value={reason} onChange={setReason} hint="Everybody sees it beside the alert, and it stands in the audit log." />
      {silencing.problem && <ErrorNotice error={silencing.problem} />}
    </Dialog>
  );
}
