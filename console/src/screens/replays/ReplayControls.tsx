// Pause, resume, cancel: what the state of a replay allows.
import { useState } from "react";
import { post } from "../../api/client";
import type { Replay } from "../../api/documents";
import { useMay } from "../../api/session";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { ReasonField } from "../../parts/ReasonField";
import { counted } from "../../parts/numbers";
import { useShortcut } from "../../shortcuts/shortcuts";
import styles from "./Replay.module.css";

interface ReplayControlsProps {
  replay: Pick<Replay, "id" | "state" | "letters" | "position" | "filters">;
  /** In a list: icons only, and no shortcuts. */
  small?: boolean;
}

export function ReplayControls({ replay, small = false }: ReplayControlsProps) {
  const operator = useMay("operator");
  const [cancelling, setCancelling] = useState(false);
  const where = { path: { replay_id: replay.id } };
  const touches = [["replays"], ["replay", replay.id]];
  const pausing = useChange({
    change: (_: null, key) => post("/api/v1/replays/{replay_id}/pause", { reason: "" }, where, { key }),
    touches,
    done: () => "Paused after the batch that is being sent",
  });
  const resuming = useChange({
    change: (_: null, key) => post("/api/v1/replays/{replay_id}/resume", undefined, where, { key }),
    touches,
    done: () => "It goes on",
  });
  const running = replay.state === "running";
  const under = running || replay.state === "paused";
  const toggle = () => (running ? pausing.make(null) : resuming.make(null));
  useShortcut("p", "Pause or resume", toggle, operator && under && !small);
  if (!operator || !under) return <span />;
  const problem = pausing.problem ?? resuming.problem;
  return (
    <div className={styles.controls}>
      <Button
        icon={running ? "pause" : "play"}
        kind={small ? "quiet" : "plain"}
        iconOnly={small}
        busy={pausing.busy || resuming.busy}
        onClick={toggle}
      >
        {running ? "Pause" : "Resume"}
      </Button>
      <Button icon="close" kind={small ? "quiet" : "plain"} iconOnly={small} onClick={() => setCancelling(true)}>
        {small ? "Cancel it" : "Cancel"}
      </Button>
      {problem && <ErrorNotice error={problem} />}
      {cancelling && <CancelDialog replay={replay} onClose={() => setCancelling(false)} />}
    </div>
  );
}

function CancelDialog({ replay, onClose }: { replay: ReplayControlsProps["replay"]; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const cancelling = useChange({
    change: (given: string, key) =>
      post("/api/v1/replays/{replay_id}/cancel", { reason: given }, { path: { replay_id: replay.id } }, { key }),
    touches: [["replays"], ["replay", replay.id]],
    done: () => "The replay is cancelled",
    then: onClose,
  });
  return (
    <Dialog
      title="Cancel this replay"
      onClose={onClose}
      onSubmit={() => {
        if (!cancelling.busy) cancelling.make(reason);
      }}
      actions={
        <>
          <Button onClick={onClose}>Let it be</Button>
          <Button kind="danger" icon="close" type="submit" busy={cancelling.busy}>
            Cancel the replay
          </Button>
        </>
      }
    >
      <p>
        {`It ends after the batch that is being sent: about ${counted(
          replay.letters - replay.position,
          "letter stays as it is",
          "letters stay as they are",
        )}. It cannot be resumed.`}
      </p>
      <ReasonField value={reason} onChange={setReason} hint="It stands with the replay, and in the audit log." />
      {cancelling.problem && <ErrorNotice error={cancelling.problem} />}
    </Dialog>
  );
}
