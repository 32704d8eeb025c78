import type { ReplayPreview } from "../../../api/documents";
import { Icon } from "../../../parts/Icon";
import { bytes, count, counted } from "../../../parts/numbers";
import { lasting } from "../../../parts/Time";
import styles from "./ReplayDialog.module.css";

type Look = ReplayPreview["destinations"][number];

/** What a replay would do now: each destination, what stands in the way, what is left out. `ticked`: so many
 * letters were picked one by one. */
export function PreviewReport({ found, ticked }: { found: ReplayPreview; ticked: number | null }) {
  const others = (ticked ?? 0) - found.matched;
  return (
    <div className={styles.report}>
      {found.letters === 0 && <p>No letter would be sent.</p>}
      <ul className={styles.looks}>
        {found.destinations.map((look) => (
          <LookLine key={`${look.queue}/${look.exchange}`} look={look} />
        ))}
      </ul>
      {found.leftOut.length > 0 && (
        <div>
          <p>{`${counted(found.skipped, "letter")} left out:`}</p>
          <ul>
            {found.leftOut.map(({ reason, letters }) => (
              <li key={reason}>{`${count(letters)}: ${reason}`}</li>
            ))}
          </ul>
        </div>
      )}
      {ticked !== null && others > 0 && (
        <p className={styles.others}>
          {`${count(others)} of ${counted(ticked, "ticked letter")} `}
          {others === 1
            ? "is not sent: it has another state by now, or was deleted."
            : "are not sent: they have another state by now, or were deleted."}
        </p>
      )}
      {found.note && <p className={styles.note}>{found.note}</p>}
    </div>
  );
}

function LookLine({ look }: { look: Look }) {
  const where = look.queue ? `queue ${look.queue}` : `exchange ${look.exchange || "(default)"}`;
  const facts = [
    look.consumers !== null && counted(look.consumers, "consumer"),
    look.ready !== null && `${count(look.ready)} ready`,
    look.maxLength !== null && `at most ${count(look.maxLength)} messages`,
    look.messageTtl !== null && `messages expire after ${lasting(look.messageTtl)}`,
  ].filter(Boolean);
  const tone = look.obstacles.length > 0 ? "blocked" : look.warnings.length > 0 ? "warned" : "fine";
  return (
    <li className={`${styles.look} ${styles[tone]}`}>
      <Icon name={tone === "fine" ? "check" : "warning"} />
      <div>
        <p>
          <strong>{counted(look.letters, "letter")}</strong>
          {` (${bytes(look.bytes)}) to `}
          <code>{where}</code>
        </p>
        {facts.length > 0 && <p className={styles.note}>{facts.join(" · ")}</p>}
        {[...look.obstacles, ...look.warnings].map((each) => (
          <p key={each}>{each}</p>
        ))}
        {look.notTaken > 0 && <p>{`${counted(look.notTaken, "letter")} would not be taken.`}</p>}
      </div>
    </li>
  );
}
