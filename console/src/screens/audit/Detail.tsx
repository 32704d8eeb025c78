import { Link } from "wouter";
import { count, counted } from "../../parts/numbers";
import styles from "./Audit.module.css";

const LINKS: Record<string, string> = { replay: "/replays/", group: "/groups/" };
const SHOWN_IDS = 3;

/** What an entry says of its change: names and values, with links to what they name. */
export function Detail({ detail }: { detail: Record<string, unknown> }) {
  const shown = Object.entries(detail).filter(([, value]) => !isNothing(value));
  return (
    <dl className={styles.detail}>
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{said(name, value)}</dd>
        </div>
      ))}
    </dl>
  );
}

function isNothing(value: unknown): boolean {
  return value === null || value === "" || value === false || (Array.isArray(value) && value.length === 0);
}

function said(name: string, value: unknown) {
  if (name in LINKS && typeof value === "string") return <Link href={LINKS[name] + value}>{value.slice(0, 18)}</Link>;
  if (name === "ids" && Array.isArray(value)) {
    return (
      <>
        {value.slice(0, SHOWN_IDS).map((id) => (
          <Link key={String(id)} href={`/letters/${String(id)}`}>{`…${String(id).slice(-12)} `}</Link>
        ))}
        {value.length > SHOWN_IDS && `and ${counted(value.length - SHOWN_IDS, "more", "more")}`}
      </>
    );
  }
  if (typeof value === "object" && value !== null) {
    const inside = Object.entries(value).map(([key, each]) => `${key} ${plain(each)}`);
    return inside.length === 0 ? "everything" : inside.join(", ");
  }
  return plain(value);
}

function plain(value: unknown): string {
  if (typeof value === "number") return count(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}
