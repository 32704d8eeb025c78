import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { Dialog } from "../../parts/Dialog";
import { ErrorNotice } from "../../parts/ErrorNotice";

interface ConfirmProps {
  title: string;
  text: string;
  verb: string;
  change: (key: string) => Promise<unknown>;
  touches: string;
  done: string;
  onClose: () => void;
}

/** Asks before somebody loses their access. */
export function Confirm({ title, text, verb, change, touches, done, onClose }: ConfirmProps) {
  const doing = useChange({
    change: (_: null, key) => change(key),
    touches: [[touches]],
    done: () => done,
    then: onClose,
  });
  return (
    <Dialog
      title={title}
      onClose={onClose}
      onSubmit={() => {
        if (!doing.busy) doing.make(null);
      }}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="danger" type="submit" busy={doing.busy}>
            {verb}
          </Button>
        </>
      }
    >
      <p>{text}</p>
      {doing.problem && <ErrorNotice error={doing.problem} />}
    </Dialog>
  );
}
