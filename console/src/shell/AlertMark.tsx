// How many alerts fire, beside the way to them; nothing while none does. Who is silenced does not count.
import { Link } from "wouter";
import { isLoud, useAlerts } from "../api/useAlerts";
import { counted } from "../parts/numbers";
import styles from "./AlertMark.module.css";

/** In the link to the overview: it becomes a part of its name. */
export function AlertMark() {
  const loud = useAlerts().data?.items.filter(isLoud) ?? [];
  if (loud.length === 0) return null;
  const critical = loud.some(({ severity }) => severity === "critical");
  return (
    <>
      <span className={`${styles.mark} ${critical ? styles.critical : ""}`} aria-hidden="true">
        {loud.length}
      </span>
      <span className="unseen">{` (${counted(loud.length, "alert fires", "alerts fire")})`}</span>
    </>
  );
}

/** In the bar at phone width, where the navigation is folded away. */
export function AlertMarkLink() {
  const loud = useAlerts().data?.items.some(isLoud);
  if (!loud) return null;
  return (
    <Link href="/" className={styles.link}>
      <span className="unseen">Overview</span>
      <AlertMark />
    </Link>
  );
}
