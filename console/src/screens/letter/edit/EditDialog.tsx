// Edit what is sent of a letter: write, look at the difference, save. The original is kept.
//
// The text is never parsed and printed again. The server makes the difference in a dry run, so what
// is shown is what would be stored, byte order, charset and all. Where somebody else saved meanwhile,
// what they changed is shown, and what is written here goes on top of it if the person wants it to.
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { ask, post, type Sent } from "../../../api/client";
import type { Letter } from "../../../api/documents";
import { asProblem, type Problem } from "../../../api/problem";
import { useChange } from "../../../api/useChange";
import { Button } from "../../../parts/Button";
import { Dialog } from "../../../parts/Dialog";
import { ErrorNotice } from "../../../parts/ErrorNotice";
import { ReasonField } from "../../../parts/ReasonField";
import { Tabs } from "../../../parts/Tabs";
import { standingEdit } from "../useLetter";
import { BodyEditor } from "./BodyEditor";
import { DiffView } from "./DiffView";
import { changesAnything, draftOf, dropDraft, hasDraft, keepDraft, type Draft } from "./drafts";
import styles from "./EditDialog.module.css";
import { HeaderEditor } from "./HeaderEditor";

type EditBody = Sent<"/api/v1/letters/{letter_id}/edit", "post">;

const PATH = "/api/v1/letters/{letter_id}/edit";

export function EditDialog({ letter, onClose }: { letter: Letter; onClose: () => void }) {
  const queries = useQueryClient();
  const stands = standingEdit(letter);
  const [madeFrom] = useState(stands?.number ?? 0);
  const [draft, setDraft] = useState<Draft>(() => draftOf(letter.id, madeFrom));
  const [restored] = useState(() => hasDraft(letter.id));
  const [tab, setTab] = useState<"body" | "headers">("body");
  const [diff, setDiff] = useState<readonly string[] | null>(null);
  const where = { path: { letter_id: letter.id } };
  const looking = useLook((body) => ask(PATH, { ...body, dryRun: true }, where), setDiff);
  const saving = useChange({
    change: (body: EditBody, key) => post(PATH, body, where, { key }),
    touches: [["letter", letter.id]],
    done: (result) => (result.edited ? "The edit is saved; it is what is sent from now on" : "It is so already"),
    then: () => {
      dropDraft(letter.id);
      onClose();
    },
  });
  useEffect(() => {
    if (changesAnything(draft)) keepDraft(letter.id, draft);
    else dropDraft(letter.id);
  }, [letter.id, draft]);
  const changed = changesAnything(draft);
  const write = (part: Partial<Draft>) => setDraft((before) => ({ ...before, ...part }));
  const problem = diff ? saving.problem : looking.problem;
  const conflict = problem?.kind === "edited-meanwhile" ? problem : null;
  const putOnNewest = async (newest: number) => {
    await queries.invalidateQueries({ queryKey: ["letter", letter.id] });
    const moved = { ...draft, madeFrom: newest };
    setDraft(moved);
    setDiff(null);
    saving.forget();
    looking.look(editOf(moved));
  };
  const goOnWriting = () => {
    setDiff(null);
    saving.forget();
  };
  const startOver = () => {
    dropDraft(letter.id);
    onClose();
  };
  return (
    <Dialog
      title={diff ? "Review the change" : "Edit what is sent"}
      wide
      onClose={onClose}
      onSubmit={() => {
        if (conflict) void putOnNewest(conflict.edit);
        else if (diff) saving.make(editOf(draft));
        else if (changed) looking.look(editOf(draft));
      }}
      actions={
        <>
          {diff ? (
            <Button key="write" icon="edit" onClick={goOnWriting}>
              Go on writing
            </Button>
          ) : (
            <>
              {(changed || restored) && <Button onClick={startOver}>Throw away</Button>}
              <Button onClick={onClose}>Close</Button>
            </>
          )}
          {conflict ? (
            <Button key="move" kind="main" type="submit" busy={looking.busy}>
              Put mine on the newest
            </Button>
          ) : diff ? (
            <Button key="save" kind="main" type="submit" busy={saving.busy} disabled={diff.length === 0}>
              Save the edit
            </Button>
          ) : (
            <Button key="review" kind="main" type="submit" busy={looking.busy} disabled={!changed}>
              Review the change
            </Button>
          )}
        </>
      }
    >
      {restored && !diff && <p className={styles.restored}>What you had written before is here again.</p>}
      {diff && <DiffView lines={diff} />}
      {diff && (
        <ReasonField
          value={draft.reason}
          onChange={(reason) => write({ reason })}
          hint="It stands in the letter's history."
        />
      )}
      <div className={styles.writing} hidden={diff !== null}>
        <Tabs
          label="What to edit"
          tabs={[
            { name: "body", text: "Body" },
            { name: "headers", text: "Headers" },
          ]}
          chosen={tab}
          onChange={setTab}
        >
          <div hidden={tab !== "body"}>
            <BodyEditor key={draft.madeFrom} letter={letter} draft={draft} onWrite={write} />
          </div>
          <div hidden={tab !== "headers"}>
            <HeaderEditor headers={stands?.headers ?? letter.headers} draft={draft} onWrite={write} />
          </div>
        </Tabs>
      </div>
      {problem && (
        <ErrorNotice error={problem} takesFocus>
          {conflict && (
            <>
              <span>What changed while you were writing; what you wrote is kept:</span>
              <DiffView lines={conflict.diff} label="What changed meanwhile" />
            </>
          )}
        </ErrorNotice>
      )}
    </Dialog>
  );
}

function editOf(draft: Draft): EditBody {
  const set: Record<string, string> = {};
  const removed: string[] = [];
  for (const [name, { value }] of Object.entries(draft.headers)) {
    if (value === null) removed.push(name);
    else set[name] = value;
  }
  return {
    madeFrom: draft.madeFrom,
    reason: draft.reason,
    setHeaders: set,
    removeHeaders: removed,
    ...(draft.body === null ? {} : { body: { encoding: "utf8" as const, data: draft.body } }),
    ...(draft.contentType === null ? {} : { contentType: draft.contentType }),
  };
}

function useLook(dryRun: (body: EditBody) => Promise<{ diff: string[] }>, found: (diff: string[]) => void) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const look = async (body: EditBody) => {
    setBusy(true);
    setProblem(null);
    try {
      found((await dryRun(body)).diff);
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  };
  return { look: (body: EditBody) => void look(body), busy, problem };
}
