// Discard, archive, restore, resolve: with the exact number of letters, and a reason.
import { useState } from "react";
import { post } from "../../../api/client";
import { useChange } from "../../../api/useChange";
import { Button } from "../../../parts/Button";
import { Dialog } from "../../../parts/Dialog";
import { ErrorNotice } from "../../../parts/ErrorNotice";
import type { IconName } from "../../../parts/Icon";
import { counted } from "../../../parts/numbers";
import { Waiting } from "../../../parts/Page";
import { ReasonField } from "../../../parts/ReasonField";
import { useToast } from "../../../parts/Toasts";
import { useChosenCount, type Chosen } from "./chosen";
import { Outcome, type Tally } from "./Outcome";

export type Verb = "discard" | "archive" | "restore" | "resolve";

interface Wording {
  name: string;
  done: string;
  about: { one: string; many: string };
  icon: IconName;
  danger: boolean;
}

export const WORDING: Record<Verb, Wording> = {
  discard: {
    name: "Discard",
    done: "discarded",
    about: {
      one: "It is of no use: archived now, and gone when retention says so. Until then it can be restored.",
      many: "They are of no use: archived now, and gone when retention says so. Until then they can be restored.",
    },
    icon: "discard",
    danger: true,
  },
  archive: {
    name: "Archive",
    done: "archived",
    about: {
      one: "It is put away: no worker sends it, and it can be restored.",
      many: "They are put away: no worker sends them, and they can be restored.",
    },
    icon: "archive",
    danger: false,
  },
  restore: {
    name: "Restore",
    done: "restored",
    about: {
      one: "It comes back as manual, for a person to decide on.",
      many: "Archived letters come back as manual, for a person to decide on.",
    },
    icon: "restore",
    danger: false,
  },
  resolve: {
    name: "Resolve",
    done: "resolved",
    about: {
      one: "Your word that it was consumed. No worker sends it again.",
      many: "Your word that they were consumed. No worker sends them again.",
    },
    icon: "check",
    danger: false,
  },
};

interface DecideDialogProps {
  verb: Verb;
  chosen: Chosen;
  onClose: () => void;
  onDone: () => void;
}

export function DecideDialog({ verb, chosen, onClose, onDone }: DecideDialogProps) {
  const wording = WORDING[verb];
  const [reason, setReason] = useState("");
  const [newCount, setNewCount] = useState<number | null>(null);
  const [tally, setTally] = useState<Tally | null>(null);
  const toast = useToast();
  const first = useChosenCount(chosen);
  const letters = newCount ?? first.letters;
  const deciding = useChange({
    change: (given: { count: number; reason: string }, key) =>
      decide(verb, chosen, given.count, given.reason, key),
    touches: [["letters"], ["letter"], ["groups"], ["stats"]],
    then: (result) => {
      onDone();
      if (result.unchanged.length > 0) setTally(result);
      else {
        toast(`${counted(result.changed, "letter")} ${wording.done}`);
        onClose();
      }
    },
  });
  if (tally) return <Outcome title={wording.name} done={wording.done} tally={tally} onClose={onClose} />;
  const problem = deciding.problem;
  const what = letters === null ? "letters" : counted(letters, "letter");
  const recount = problem?.kind === "count-changed" && problem.letters !== null && problem.letters !== letters;
  return (
    <Dialog
      title={`${wording.name} ${what}`}
      onClose={onClose}
      onSubmit={() => {
        if (letters !== null && letters > 0 && !deciding.busy && !recount) deciding.make({ count: letters, reason });
      }}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          {recount ? (
            // With a key: one button that turned into the other under a click would submit by it.
            <Button
              key="recount"
              kind="main"
              onClick={() => {
                setNewCount(problem.letters);
                deciding.forget();
              }}
            >
              {`Show ${counted(problem.letters!, "letter")} instead`}
            </Button>
          ) : (
            <Button
              key="decide"
              kind={wording.danger ? "danger" : "main"}
              type="submit"
              icon={wording.icon}
              busy={deciding.busy}
              disabled={letters === null || letters === 0}
            >
              {`${wording.name} ${what}`}
            </Button>
          )}
        </>
      }
    >
      {letters === null && !first.error && <Waiting lines={1} />}
      {Boolean(first.error) && <ErrorNotice error={first.error} />}
      {letters === 0 && <p>No letter matches any more.</p>}
      <p>{letters === 1 ? wording.about.one : wording.about.many}</p>
      <ReasonField value={reason} onChange={setReason} hint={`It stands in the history of ${letters === 1 ? "the letter" : "each letter"}, and in the audit log.`} />
      {problem && <ErrorNotice error={problem} />}
    </Dialog>
  );
}

async function decide(
  verb: Verb,
  chosen: Chosen,
  count: number,
  reason: string,
  key: string,
): Promise<Tally> {
  const body =
    "ids" in chosen ? { ids: [...chosen.ids], reason } : { filter: chosen.filter, count, reason };
  switch (verb) {
    case "discard": {
      const { discarded, unchanged } = await post("/api/v1/letters/discard", body, {}, { key });
      return { changed: discarded, unchanged };
    }
    case "archive": {
      const { archived, unchanged } = await post("/api/v1/letters/archive", body, {}, { key });
      return { changed: archived, unchanged };
    }
    case "restore": {
      const { restored, unchanged } = await post("/api/v1/letters/restore", body, {}, { key });
      return { changed: restored, unchanged };
    }
    case "resolve": {
      const { resolved, unchanged } = await post("/api/v1/letters/resolve", body, {}, { key });
      return { changed: resolved, unchanged };
    }
  }
}
