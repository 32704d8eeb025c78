import { useState } from "react";
import { put } from "../../api/client";
import type { Role, User } from "../../api/documents";
import { sessionKey, useMe } from "../../api/session";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Field, inputClass } from "../../parts/Field";
import { RoleField } from "./RoleField";

/** Somebody new, or another role or password for somebody. */
export function UserDialog({ user, onClose }: { user: User | null; onClose: () => void }) {
  const [name, setName] = useState(user?.name ?? "");
  // The first one has to be somebody who can add the others.
  const first = useMe().login === "none";
  const [role, setRole] = useState<Role>(user?.role ?? (first ? "admin" : "operator"));
  const [password, setPassword] = useState("");
  const saving = useChange({
    change: (given: { name: string; role: Role; password: string | null }, key) => put("/api/v1/users", given, {}, { key }),
    touches: [["users"], sessionKey],
    done: (saved) => (user === null ? `${saved.name} is added` : `${saved.name} is changed`),
    then: onClose,
  });
  const ready = name.trim() !== "" && (user !== null || password !== "");
  return (
    <Dialog
      title={user === null ? "Add a user" : `Change ${user.name}`}
      onClose={onClose}
      onSubmit={() => {
        if (ready && !saving.busy) saving.make({ name: name.trim(), role, password: password || null });
      }}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="main" type="submit" busy={saving.busy} disabled={!ready}>
            {user === null ? "Add" : "Save"}
          </Button>
        </>
      }
    >
      <Field label="Name">
        {(ids) => (
          <input
            {...ids}
            className={inputClass}
            autoFocus={user === null}
            readOnly={user !== null}
            maxLength={100}
            autoComplete="off"
            autoCapitalize="none"
            value={name}
            onChange={(event) => setName(event.target.value)}
          />
        )}
      </Field>
      {first ? <p>The first user is admin, and adds the others.</p> : <RoleField role={role} onChange={setRole} />}
      <Field
        label="Password"
        hint={user === null ? "Eight characters or more." : "Empty: it stays. Who is changed has to log in again."}
      >
        {(ids) => (
          <input
            {...ids}
            className={inputClass}
            type="password"
            autoComplete="new-password"
            value={password}
            onChange={(event) => setPassword(event.target.value)}
          />
        )}
      </Field>
      {saving.problem && <ErrorNotice error={saving.problem} />}
    </Dialog>
  );
}
