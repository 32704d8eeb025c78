import { Link } from "wouter";
import { Button } from "../../../parts/Button";
import { Dialog } from "../../../parts/Dialog";
import { counted } from "../../../parts/numbers";
import { sentence } from "../../../parts/ErrorNotice";

export interface Tally {
  changed: number;
  unchanged: readonly { reason: string; letters: number; example: string }[];
}

/** What became of a decision, where not every letter could be changed. */
export function Outcome(props: { title: string; done: string; tally: Tally; onClose: () => void }) {
  const { tally, onClose } = props;
  return (
    <Dialog
      title={props.title}
      onClose={onClose}
      actions={
        <Button kind="main" onClick={onClose}>
          Close
        </Button>
      }
    >
      <p>
        <strong>{`${counted(tally.changed, "letter")} ${props.done}.`}</strong> The rest was left as it is:
      </p>
      <ul>
        {tally.unchanged.map(({ reason, letters, example }) => (
          <li key={reason}>
            {`${counted(letters, "letter")}: ${sentence(reason)} `}
            <Link href={`/letters/${example}`} onClick={onClose}>
              One of them
            </Link>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
