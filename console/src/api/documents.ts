// The API's documents by the names that the console uses.
import type { components, operations } from "./schema";

type Schemas = components["schemas"];

export type LetterSummary = Schemas["LetterSummary"];
export type Letter = Schemas["LetterDocument"];
export type LetterPage = Schemas["LetterPage"];
export type State = LetterSummary["status"];
export type Body = Schemas["Body"];
export type Header = Schemas["Header"];
export type Death = Schemas["Death"];
export type Attempt = Schemas["Attempt"];
export type Edit = Schemas["Edit"];
export type ReplayPreview = Schemas["ReplayPreview"];
export type Replay = Schemas["Replay"];
export type Me = Schemas["Me"];
export type Role = NonNullable<Me["role"]>;
export type Selection = Schemas["Selection"];
export type LettersQuery = NonNullable<operations["list_letters"]["parameters"]["query"]>;

export const STATES = [
  "dlq_pending",
  "dlq_processing",
  "dlq_manual",
  "dlq_failed",
  "dlq_resolved",
  "dlq_archived",
] as const satisfies readonly State[];

/** The state as people say it. */
export function wordOf(state: State): string {
  return state.replace("dlq_", "");
}

export type Content = Schemas["Content"];
export type Classification = Schemas["Classification"];
export type Group = Schemas["Group"];
export type GroupDocument = Schemas["GroupDocument"];
export type EditedMany = Schemas["EditedMany"];
export type PlainGroup = Schemas["PlainGroup"];
export type Counts = Schemas["Counts"];
export type Stats = Schemas["Stats"];
export type Health = Schemas["Health"];
export type Breaker = Schemas["Breaker"];
export type Alert = Schemas["Alert"];
export type WaitingSink = Schemas["WaitingSink"];
export type ReplayReport = Schemas["ReplayReport"];
export type ReplayLetter = Schemas["ReplayLetter"];
export type Policy = Schemas["Policy"];
export type Topology = Schemas["Topology"];
export type Finding = Schemas["Finding"];
export type AuditEntry = Schemas["AuditEntry"];
export type Token = Schemas["Token"];
export type User = Schemas["User"];
export type Span = NonNullable<NonNullable<operations["get_series"]["parameters"]["query"]>["span"]>;

/** What somebody may still have to do something about. */
export const OPEN = ["dlq_pending", "dlq_processing", "dlq_manual", "dlq_failed"] as const satisfies readonly State[];

export function openLetters(counts: Counts): number {
  return OPEN.reduce((sum, state) => sum + counts[state], 0);
}
