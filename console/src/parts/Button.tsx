import type { ButtonHTMLAttributes } from "react";
import styles from "./Button.module.css";
import { Icon, type IconName } from "./Icon";

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  /** `main` once on a screen or dialog; `danger` for what cannot be taken back easily. */
  kind?: "plain" | "main" | "danger" | "quiet";
  icon?: IconName;
  /** It is being done: it cannot be pressed again, and says so. */
  busy?: boolean;
  /** Only the icon is shown; the text is its name. */
  iconOnly?: boolean;
}

export function Button({ kind = "plain", icon, busy, iconOnly, children, ...more }: ButtonProps) {
  return (
    <button
      type="button"
      {...more}
      className={`${styles.button} ${styles[kind]} ${iconOnly ? styles.iconOnly : ""}`}
      aria-disabled={busy || undefined}
      aria-busy={busy || undefined}
      title={iconOnly && typeof children === "string" ? (more.title ?? children) : more.title}
      onClick={busy ? (event) => event.preventDefault() : more.onClick}
    >
      {busy ? <span className={styles.spinner} aria-hidden="true" /> : icon && <Icon name={icon} size={16} />}
      {iconOnly ? <span className="unseen">{children}</span> : children}
    </button>
  );
}
