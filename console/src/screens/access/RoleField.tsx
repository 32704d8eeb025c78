import type { Role } from "../../api/documents";
import { Field, inputClass } from "../../parts/Field";

const ROLES: readonly { role: Role; may: string }[] = [
  { role: "viewer", may: "sees letters and previews replays" },
  { role: "operator", may: "also changes letters, groups, replays and breakers" },
  { role: "admin", may: "also changes policies, users and tokens" },
];

export function RoleField({ role, onChange }: { role: Role; onChange: (role: Role) => void }) {
  return (
    <Field label="Role" hint={ROLES.find((each) => each.role === role)?.may}>
      {(ids) => (
        <select {...ids} className={inputClass} value={role} onChange={(event) => onChange(event.target.value as Role)}>
          {ROLES.map((each) => (
            <option key={each.role} value={each.role}>
              {each.role}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
