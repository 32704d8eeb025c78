// Replay: first as a dry run that looks at the broker, then for real with the number that it found.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useDeferredValue, useState } from "react";
import { ask, post } from "../../../api/client";
import type { Replay, ReplayPreview, Selection } from "../../../api/documents";
import { useChange } from "../../../api/useChange";
import { frozen } from "../../../live/readAgain";
import { Button } from "../../../parts/Button";
import { Dialog } from "../../../parts/Dialog";
import { ErrorNotice } from "../../../parts/ErrorNotice";
import { checkClass, Field, inputClass } from "../../../parts/Field";
import { counted } from "../../../parts/numbers";
import { Waiting } from "../../../parts/Page";
import type { Chosen } from "./chosen";
import { Pace, paceOf, type PaceTyped } from "./Pace";
import { PreviewReport } from "./PreviewReport";
import styles from "./ReplayDialog.module.css";

type Way = "origin" | "queue" | "exchange";

interface ReplayDialogProps {
  chosen: Chosen;
  onClose: () => void;
  onDone: (replay: Replay) => void;
}

export function ReplayDialog({ chosen, onClose, onDone }: ReplayDialogProps) {
  const many = !("ids" in chosen) || chosen.ids.length > 1;
  const filter = filterOf(chosen);
  const [way, setWay] = useState<Way>("origin");
  const [name, setName] = useState("");
  const [doubtful, setDoubtful] = useState(false);
  const [dropOldest, setDropOldest] = useState(false);
  // The reasons against it, if somebody wants it even so. Of many letters only: whether a machine is busy says
  // nothing of one.
  const [agreed, setAgreed] = useState<string | null>(null);
  const [pace, setPace] = useState<PaceTyped>({ batchSize: "", rate: "" });
  const destination = useDeferredValue(name.trim());
  const to = way === "origin" ? null : `${way}:${destination}`;
  // Who opens one letter and sends it means it, whatever is in doubt.
  const wanted = { filter, to, dropOldest, ...(many ? { withDoubtful: doubtful } : {}) };
  const preview = useQuery({
    queryKey: ["replay preview", JSON.stringify(wanted)],
    queryFn: ({ signal }) => ask("/api/v1/replays/preview", wanted, {}, signal),
    enabled: way === "origin" || destination !== "",
    meta: frozen,
    staleTime: Infinity,
    gcTime: 0,
    placeholderData: keepPreviousData,
    retry: false,
  });
  const sending = useChange({
    change: (given: typeof wanted & { count: number; ignoreHealth: boolean; batchSize?: number }, key) =>
      post("/api/v1/replays", given, {}, { key }),
    touches: [["replays"], ["letters"], ["letter"], ["stats"]],
    done: (replay) => `Replay of ${counted(replay.letters, "letter")} begun`,
    then: (replay) => {
      onDone(replay);
      onClose();
    },
  });
  const found = to !== null && destination === "" ? undefined : preview.data;
  const current = found !== undefined && !preview.isPlaceholderData && !preview.isFetching;
  // It may have been well when it was looked at, and no longer when it was asked to send.
  const unwell = many && ((found?.unmet.length ?? 0) > 0 || sending.problem?.kind === "not-well");
  // Not in spite of what is found later.
  const reasons = found?.unmet.join("\n") ?? agreed;
  if (agreed !== null && agreed !== reasons) setAgreed(null);
  const evenSo = agreed !== null;
  const ready = current && found.letters > 0 && (!unwell || evenSo);
  const drops = found?.destinations.some(wouldDropOldest) ?? false;
  const plural = found ? found.letters !== 1 : many;
  const title = found ? `Replay ${counted(found.letters, "letter")}` : "Replay";
  return (
    <Dialog
      title={title}
      wide
      onClose={onClose}
      onSubmit={() => {
        if (!ready || sending.busy) return;
        sending.make({ ...wanted, ...paceOf(pace), count: found.matched, ignoreHealth: evenSo || !many });
      }}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button icon="search" busy={preview.isFetching} onClick={() => void preview.refetch()}>
            Look again
          </Button>
          <Button kind="main" icon="send" type="submit" busy={sending.busy} disabled={!ready}>
            {title}
          </Button>
        </>
      }
    >
      <fieldset className={styles.ways}>
        <legend>Where to</legend>
        {WAYS.map(({ value, one, several }) => (
          <label key={value} className={checkClass}>
            <input type="radio" name="way" checked={way === value} onChange={() => setWay(value)} />
            {plural ? several : one}
          </label>
        ))}
      </fieldset>
      {way !== "origin" && (
        <Field label={way === "queue" ? "Queue" : "Exchange"} hint={plural ? HINTS[way].several : HINTS[way].one}>
          {(ids) => (
            <input
              {...ids}
              className={inputClass}
              autoFocus
              spellCheck={false}
              autoCapitalize="none"
              maxLength={255}
              value={name}
              onChange={(event) => setName(event.target.value)}
            />
          )}
        </Field>
      )}
      {many && (
        <>
          <label className={checkClass}>
            <input type="checkbox" checked={doubtful} onChange={(event) => setDoubtful(event.target.checked)} />
            Also letters in doubt: they may have been consumed already, or be one of two copies
          </label>
          <Pace typed={pace} onChange={setPace} />
        </>
      )}
      <section className={styles.preview} aria-label="Dry run" aria-busy={preview.isFetching}>
        <h3>Dry run</h3>
        {preview.error ? (
          <ErrorNotice error={preview.error} retry={() => void preview.refetch()} />
        ) : found ? (
          <PreviewReport found={found} ticked={many && "ids" in chosen ? chosen.ids.length : null} />
        ) : to !== null && destination === "" ? (
          <p>{`Name the ${way}, and the broker is asked whether it would take ${plural ? "them" : "it"}.`}</p>
        ) : (
          <Waiting lines={3} />
        )}
      </section>
      {(drops || dropOldest) && (
        <label className={checkClass}>
          <input type="checkbox" checked={dropOldest} onChange={(event) => setDropOldest(event.target.checked)} />
          Send all the same: a full queue then drops its oldest messages, for good
        </label>
      )}
      {unwell && found && (
        <EvenSo found={found} plural={plural} checked={evenSo} onChange={(on) => setAgreed(on ? reasons : null)} />
      )}
      {sending.problem && (
        <ErrorNotice
          error={sending.problem}
          retry={sending.problem.kind === "count-changed" ? () => void preview.refetch().then(sending.forget) : undefined}
        />
      )}
    </Dialog>
  );
}

/** Of several that were ticked, those that are still as they were seen: one that was resolved meanwhile
 * is not sent again. */
function filterOf(chosen: Chosen): Selection {
  if ("filter" in chosen) return chosen.filter;
  const id = [...chosen.ids];
  return id.length > 1 && chosen.states ? { id, status: [...chosen.states] } : { id };
}

/** Whether a queue would make room for letters by dropping what waits there: they stay, unless it is wanted. */
function wouldDropOldest(look: ReplayPreview["destinations"][number]): boolean {
  const limited = look.maxLength !== null || look.maxLengthBytes !== null;
  return limited && look.notTaken > 0 && (look.overflow ?? "drop-head") === "drop-head";
}

const WAYS: readonly { value: Way; one: string; several: string }[] = [
  { value: "origin", one: "Where it failed", several: "Where they failed" },
  { value: "queue", one: "Another queue", several: "Another queue" },
  { value: "exchange", one: "An exchange", several: "An exchange" },
];

const HINTS = {
  queue: {
    one: "Only this queue gets it, with its original routing key.",
    several: "Only this queue gets them, with their original routing key.",
  },
  exchange: {
    one: "It is published there with its original routing key.",
    several: "They are published there with their original routing key.",
  },
};

function EvenSo(props: { found: ReplayPreview; plural: boolean; checked: boolean; onChange: (on: boolean) => void }) {
  return (
    <div className={styles.unwell}>
      {props.found.unmet.length > 0 && (
        <>
          <strong>The system is not well:</strong>
          <ul>
            {props.found.unmet.map((why) => (
              <li key={why}>{why}</li>
            ))}
          </ul>
        </>
      )}
      <label className={checkClass}>
        <input type="checkbox" checked={props.checked} onChange={(event) => props.onChange(event.target.checked)} />
        {props.plural ? "Send them even so" : "Send it even so"}
      </label>
    </div>
  );
}
