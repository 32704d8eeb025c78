import { useState } from "react";
import { Button } from "../../parts/Button";
import { count, counted } from "../../parts/numbers";
import type { Chosen } from "./actions/chosen";
import { DecideDialog, WORDING, type Verb } from "./actions/DecideDialog";
import { ReplayDialog } from "./actions/ReplayDialog";
import styles from "./SelectionBar.module.css";
import type { LetterSelection } from "./useSelection";

const VERBS: readonly Verb[] = ["discard", "archive", "restore", "resolve"];

/** What can be done with the letters that are ticked. */
export function SelectionBar({ selection, more }: { selection: LetterSelection; more: boolean }) {
  const [open, setOpen] = useState<{ what: Verb | "replay"; chosen: Chosen } | null>(null);
  const close = () => setOpen(null);
  const dialog = open && (
    open.what === "replay" ? (
      <ReplayDialog chosen={open.chosen} onClose={close} onDone={selection.clear} />
    ) : (
      <DecideDialog verb={open.what} chosen={open.chosen} onClose={close} onDone={selection.clear} />
    )
  );
  const any = selection.all || selection.number > 0;
  const start = (what: Verb | "replay") => setOpen({ what, chosen: selection.chosen });
  return (
    <>
      {any && (
        <div className={styles.bar} role="toolbar" aria-label="Selected letters">
          <span className={styles.number} role="status">
            {selection.all ? "All letters that match" : `${counted(selection.number, "letter")} selected`}
            {selection.left > 0 && `, ${count(selection.left)} more not: that is the most at once. A filter can choose more.`}
          </span>
          {selection.allRead && more && (
            <Button kind="quiet" onClick={selection.everything}>
              Select all that match
            </Button>
          )}
          <span className={styles.actions}>
            <Button kind="main" icon="send" onClick={() => start("replay")}>
              Replay…
            </Button>
            {VERBS.map((verb) => (
              <Button key={verb} icon={WORDING[verb].icon} onClick={() => start(verb)}>
                {`${WORDING[verb].name}…`}
              </Button>
            ))}
            <Button kind="quiet" icon="close" onClick={selection.clear}>
              Clear
            </Button>
          </span>
        </div>
      )}
      {dialog}
    </>
  );
}
