import { useEffect, useRef, type ReactNode } from "react";
import styles from "./Drawer.module.css";

/** The navigation at phone width: a dialog at the side, closed by Esc or beside it. */
export function Drawer(props: { label: string; onClose: () => void; children: ReactNode }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      className={styles.drawer}
      aria-label={props.label}
      onClose={props.onClose}
      onClick={(event) => {
        if (event.target === dialog.current) props.onClose();
      }}
    >
      {props.children}
    </dialog>
  );
}
