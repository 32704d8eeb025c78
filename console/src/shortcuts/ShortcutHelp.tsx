import { useState } from "react";
import { Button } from "../parts/Button";
import { Dialog } from "../parts/Dialog";
import styles from "./ShortcutHelp.module.css";
import { useActiveShortcuts, useShortcut } from "./shortcuts";

/** The button and the key `?`: every shortcut that works on this screen. */
export function ShortcutHelp() {
  const [open, setOpen] = useState(false);
  useShortcut("?", "Show these shortcuts", () => setOpen(true));
  return (
    <>
      <Button kind="quiet" icon="keyboard" iconOnly onClick={() => setOpen(true)}>
        Keyboard shortcuts
      </Button>
      {open && <Help onClose={() => setOpen(false)} />}
    </>
  );
}

function Help({ onClose }: { onClose: () => void }) {
  const shortcuts = useActiveShortcuts();
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl className={styles.list}>
        {shortcuts.map(({ keys, what }) => (
          <div key={keys} className={styles.row}>
            <dt>
              {keys.split(" ").map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
        <div className={styles.row}>
          <dt>
            <kbd>Esc</kbd>
          </dt>
          <dd>Close a dialog, empty a search</dd>
        </div>
      </dl>
    </Dialog>
  );
}
