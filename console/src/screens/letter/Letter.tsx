// One letter: what is in it, why it failed, what became of it, and what can be done.
import { Link, useParams } from "wouter";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Page, Section, Waiting } from "../../parts/Page";
import { StateBadge } from "../../parts/StateBadge";
import { CopyButton } from "../../parts/CopyButton";
import { Time } from "../../parts/Time";
import type { Letter as LetterDocument } from "../../api/documents";
import { addressOfFilters, useLetterFilters } from "../letters/filters";
import { Edits } from "./Edits";
import { Facts } from "./Facts";
import { Failure } from "./Failure";
import { Headers } from "./Headers";
import styles from "./Letter.module.css";
import { LetterActions } from "./LetterActions";
import { Neighbours } from "./Neighbours";
import { Payload } from "./Payload";
import { Siblings } from "./Siblings";
import { Timeline } from "./Timeline";
import { useLetter } from "./useLetter";

export default function Letter() {
  const { id = "" } = useParams<{ id: string }>();
  const filters = useLetterFilters();
  const letter = useLetter(id);
  const query = addressOfFilters(filters.selection);
  const found = letter.data;
  return (
    <Page
      name={found ? `${found.errorType} · ${id.slice(-8)}` : "Letter"}
      title={
        <span className={styles.title}>
          <Link href={`/letters${query}`} className={styles.back}>
            Letters
          </Link>
          <span className={styles.name}>{found?.errorType ?? "Letter"}</span>
          {found && <StateBadge state={found.status} />}
        </span>
      }
      about={found ? <About letter={found} /> : null}
      actions={<Neighbours id={id} filter={filters.selection} />}
    >
      {letter.error && <ErrorNotice error={letter.error} retry={() => void letter.refetch()} />}
      {!found && !letter.error && <Waiting lines={12} />}
      {found && (
        <div key={found.id} className={styles.letter}>
          <LetterActions letter={found} />
          <div className={styles.columns}>
            <div className={styles.column}>
              <Failure letter={found} />
              <Payload letter={found} />
              {found.edits.length > 0 && <Edits letter={found} />}
              <Headers letter={found} />
            </div>
            <div className={styles.column}>
              <Section title="Facts">
                <Facts letter={found} />
              </Section>
              <Section title="Timeline">
                <Timeline letter={found} />
              </Section>
              <Siblings letter={found} />
            </div>
          </div>
        </div>
      )}
    </Page>
  );
}

function About({ letter }: { letter: LetterDocument }) {
  return (
    <span className={styles.about}>
      <span>
        failed <Time at={letter.lastFailedAt} /> in <code>{letter.origin.queue ?? "an unknown queue"}</code>
      </span>
      <span className={styles.id}>
        <code>{letter.id}</code>
        <CopyButton text={letter.id} what="the letter's id" />
      </span>
    </span>
  );
}
