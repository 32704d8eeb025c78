// What an alert has found, as people say it, and where to look.
import type { Alert } from "../../api/documents";
import { counted } from "../../parts/numbers";
import type { Tone } from "../../parts/StateBadge";
import { lasting } from "../../parts/Time";

export const TONES: Record<Alert["severity"], Tone> = { critical: "failed", warning: "manual", info: "pending" };

const RANKS: Record<Alert["severity"], number> = { critical: 0, warning: 1, info: 2 };

/** Those that are silenced last, then by severity, then the newest. */
export function byUrgency(one: Alert, other: Alert): number {
  return (
    Number(one.silence !== null) - Number(other.silence !== null) ||
    RANKS[one.severity] - RANKS[other.severity] ||
    (other.since ?? "").localeCompare(one.since ?? "") ||
    one.name.localeCompare(other.name)
  );
}

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const share = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });

/** `11,000 letters`, `120 a minute`, `26h`, `43%` */
export function valueOf({ value, unit }: Pick<Alert, "value" | "unit">): string {
  if (value === null) return "unknown";
  if (unit === null) return plain.format(value);
  if (unit === "a second") return `${plain.format(value * 60)} a minute`;
  if (unit === "seconds") return lasting(value * 1000);
  if (unit === "a share") return share.format(value);
  return counted(value, unit.replace(/s$/, ""), unit);
}

export interface Place {
  to: string;
  name: string;
}

// By the measures and counters that a condition names.
const PLACES: readonly [named: RegExp, place: Place][] = [
  [
    /\b(dlq_new_groups|groups|dlq_fastest_group_rate|dlq_ingestion_rate|letters_received)\b/,
    { to: "/groups?order=newest", name: "Groups, last seen first" },
  ],
  [/\b(dlq_backlog|dlq_resolution_rate|letters_resolved)\b/, { to: "/groups", name: "Largest groups" }],
  [
    /\b(dlq_manual|dlq_manual_entered|dlq_oldest_manual|letters_manual)\b/,
    { to: "/letters?status=manual", name: "Letters left to a person" },
  ],
  [/\b(dlq_failed|letters_failed)\b/, { to: "/letters?status=failed", name: "Letters given up" }],
  [/\bdlq_oldest_pending\b/, { to: "/letters?status=pending", name: "Pending letters" }],
  [/\b(dlq_replay_success_rate|replays_\w+)\b/, { to: "/replays", name: "Replays" }],
];

export function placesOf(condition: string): Place[] {
  return PLACES.filter(([named]) => named.test(condition)).map(([, place]) => place);
}
