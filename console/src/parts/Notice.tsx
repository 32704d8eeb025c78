import type { ReactNode } from "react";
import { Icon } from "./Icon";
import styles from "./Notice.module.css";

/** Something that whoever looks should know: what is wrong, or what to mind. */
export function Notice(props: { tone: "danger" | "warning" | "good"; title: string; children?: ReactNode }) {
  return (
    <div className={`${styles.notice} ${styles[props.tone]}`} role="status">
      <Icon name={props.tone === "good" ? "check" : "warning"} />
      <div className={styles.text}>
        <strong>{props.title}</strong>
        {props.children && <div>{props.children}</div>}
      </div>
    </div>
  );
}
