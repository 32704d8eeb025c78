import type { ReactNode } from "react";
import styles from "./EmptyState.module.css";
import { Icon, type IconName } from "./Icon";

/** Nothing to show: says why, and what to do next. */
export function EmptyState(props: { icon: IconName; title: string; children?: ReactNode }) {
  return (
    <div className={styles.empty}>
      <span className={styles.icon}>
        <Icon name={props.icon} size={26} />
      </span>
      <h2>{props.title}</h2>
      {props.children && <div className={styles.text}>{props.children}</div>}
    </div>
  );
}
