import type { Letter } from "../../api/documents";
import { sentence } from "../../parts/ErrorNotice";
import { Time } from "../../parts/Time";
import styles from "./LetterActions.module.css";
import { useClassification } from "./useLetter";

/** What happens to the letter next, if nobody does anything, and why. */
export function Next({ letter }: { letter: Letter }) {
  const { data } = useClassification(letter.id);
  const last = letter.history.findLast(({ from, to, reason }) => from !== to && reason !== "");
  return (
    <div className={styles.next}>
      <strong>
        {data?.strategy === "manual" && letter.status === "dlq_pending" ? (
          "The next worker hands it to a person"
        ) : (
          <Words letter={letter} />
        )}
      </strong>
      {data && letter.status === "dlq_pending" && (
        <p className={styles.why}>{`Strategy ${data.strategy}: ${sentence(data.why)}`}</p>
      )}
      {letter.status === "dlq_manual" && last && (
        <p className={styles.why}>{`${sentence(last.reason)} By ${last.actor}.`}</p>
      )}
    </div>
  );
}

function Words({ letter }: { letter: Letter }) {
  switch (letter.status) {
    case "dlq_pending":
      if (letter.nextRetryAt === null) return "A worker looks at it soon";
      if (Date.parse(letter.nextRetryAt) <= Date.now()) return "Due now: the next worker takes it";
      return (
        <>
          A worker sends it again <Time at={letter.nextRetryAt} />
        </>
      );
    case "dlq_processing":
      if (letter.verdictDueAt === null) return "It was sent, and waits for what becomes of it";
      return (
        <>
          It was sent. If it does not come back, it counts as consumed <Time at={letter.verdictDueAt} />
        </>
      );
    case "dlq_manual":
      return "It waits for a person: nothing happens by itself";
    case "dlq_failed":
      return "It failed too often: nothing happens by itself, until retention archives it";
    case "dlq_resolved":
      return `Resolved${letter.resolution ? ` by ${RESOLUTIONS[letter.resolution]}` : ""}`;
    case "dlq_archived":
      return "Archived: nothing happens unless somebody restores it";
  }
}

const RESOLUTIONS: Record<NonNullable<Letter["resolution"]>, string> = {
  receipt: "a receipt of its consumer",
  silence: "silence: it did not come back",
  operator: "a person's word",
  unknown: "silence, but its queue has no dead letter exchange: it may be lost",
};
