// What can be done with a whole group. Each begins with a dialog that has the exact number of letters.
import { useState } from "react";
import { useLocation } from "wouter";
import type { Group, Selection } from "../../api/documents";
import { DecideDialog } from "../letters/actions/DecideDialog";
import { ReplayDialog } from "../letters/actions/ReplayDialog";
import { EditGroup } from "./EditGroup";

export type GroupVerb = "replay" | "edit" | "discard";
type Named = Pick<Group, "fingerprint" | "errorType">;

interface GroupAction {
  now: { verb: GroupVerb; group: Named } | null;
  begin: (verb: GroupVerb, group: Named) => void;
  end: () => void;
}

export function useGroupAction(): GroupAction {
  const [now, setNow] = useState<GroupAction["now"]>(null);
  return { now, begin: (verb, group) => setNow({ verb, group }), end: () => setNow(null) };
}

/** Letters of a group that somebody can still do something about: not those that are on their way. */
export function changeable(fingerprint: string): Selection {
  return { group: fingerprint, status: ["dlq_pending", "dlq_manual", "dlq_failed"] };
}

export function GroupActions({ action }: { action: GroupAction }) {
  const [, go] = useLocation();
  if (action.now === null) return null;
  const { verb, group } = action.now;
  const filter = changeable(group.fingerprint);
  switch (verb) {
    case "replay":
      return (
        <ReplayDialog chosen={{ filter }} onClose={action.end} onDone={(replay) => go(`/replays/${replay.id}`)} />
      );
    case "discard":
      return <DecideDialog verb="discard" chosen={{ filter }} onClose={action.end} onDone={() => undefined} />;
    case "edit":
      return <EditGroup filter={filter} onClose={action.end} />;
  }
}
