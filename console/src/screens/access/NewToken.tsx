import { useState } from "react";
import { post } from "../../api/client";
import type { Role } from "../../api/documents";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { CopyButton } from "../../parts/CopyButton";
import { Dialog } from "../../parts/Dialog";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Field, inputClass } from "../../parts/Field";
import { RoleField } from "./RoleField";

/** Makes a token, and shows its secret: once, here. */
export function NewToken({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [days, setDays] = useState("90");
  const [secret, setSecret] = useState<string | null>(null);
  const making = useChange({
    change: (given: { name: string; role: Role; days: number | null }, key) => post("/api/v1/tokens", given, {}, { key }),
    touches: [["tokens"]],
    then: ({ token }) => setSecret(token),
  });
  if (secret !== null) {
    return (
      <Dialog
        title={`The token ${name}`}
        onClose={onClose}
        actions={
          <>
            <CopyButton what="the token" label="Copy the token" text={secret} />
            <Button kind="main" onClick={onClose}>
              I have kept it
            </Button>
          </>
        }
      >
        <p>This is shown once, and kept nowhere. Who has it may do what its role may.</p>
        <code>{secret}</code>
      </Dialog>
    );
  }
  return (
    <Dialog
      title="Make a token"
      onClose={onClose}
      onSubmit={() => {
        if (name.trim() && !making.busy) making.make({ name: name.trim(), role, days: days.trim() ? Number(days) : null });
      }}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="main" type="submit" busy={making.busy} disabled={!name.trim()}>
            Make it
          </Button>
        </>
      }
    >
      <Field label="Name" hint="What it is for: it stands in the audit log.">
        {(ids) => (
          <input
            {...ids}
            className={inputClass}
            autoFocus
            maxLength={100}
            value={name}
            onChange={(event) => setName(event.target.value)}
          />
        )}
      </Field>
      <RoleField role={role} onChange={setRole} />
      <Field label="Days" hint="How long it may be used; empty: for ever.">
        {(ids) => (
          <input
            {...ids}
            className={inputClass}
            type="number"
            min={1}
            max={3650}
            value={days}
            onChange={(event) => setDays(event.target.value)}
          />
        )}
      </Field>
      {making.problem && <ErrorNotice error={making.problem} />}
    </Dialog>
  );
}
