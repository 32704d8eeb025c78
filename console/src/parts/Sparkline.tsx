import styles from "./Sparkline.module.css";

const WIDTH = 120;
const HEIGHT = 28;

/** A trend without axes: its form, and the newest point. What it says in numbers is its name. */
export function Sparkline({ counts, name }: { counts: readonly number[]; name: string }) {
  const most = Math.max(1, ...counts);
  const step = WIDTH / Math.max(1, counts.length);
  const wide = Math.max(1, step - 1);
  return (
    <svg className={styles.spark} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={name} preserveAspectRatio="none">
      <title>{name}</title>
      {counts.map((number, at) => {
        const high = number === 0 ? 1 : Math.max(2.5, (number / most) * HEIGHT);
        return (
          <rect
            key={at}
            className={number === 0 ? styles.none : styles.some}
            x={at * step}
            y={HEIGHT - high}
            width={wide}
            height={high}
            rx={0.75}
          />
        );
      })}
    </svg>
  );
}
