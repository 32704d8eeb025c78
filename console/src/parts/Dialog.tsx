import { useEffect, useId, useRef, type ReactNode } from "react";
import { Button } from "./Button";
import styles from "./Dialog.module.css";

interface DialogProps {
  title: string;
  /** Esc, the cross, or a button that closes. */
  onClose: () => void;
  children: ReactNode;
  /** Buttons, the most important last. */
  actions?: ReactNode;
  wide?: boolean;
  /** With it the dialog is a form: Enter in a field does the main thing. */
  onSubmit?: () => void;
}

/** A native dialog: what is behind it cannot be reached, Esc closes it, the focus comes back. */
export function Dialog({ title, onClose, children, actions, wide, onSubmit }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  const inside = (
    <>
      <header className={styles.header}>
        <h2 id={heading}>{title}</h2>
        <Button kind="quiet" icon="close" iconOnly onClick={onClose}>
          Close
        </Button>
      </header>
      <div className={styles.content}>{children}</div>
      {actions && <footer className={styles.actions}>{actions}</footer>}
    </>
  );
  return (
    <dialog
      ref={dialog}
      className={`${styles.dialog} ${wide ? styles.wide : ""}`}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      {onSubmit ? (
        <form
          className={styles.inside}
          noValidate
          onSubmit={(event) => {
            event.preventDefault();
            onSubmit();
          }}
        >
          {inside}
        </form>
      ) : (
        <div className={styles.inside}>{inside}</div>
      )}
    </dialog>
  );
}
