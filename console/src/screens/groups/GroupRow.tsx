import { Link } from "wouter";
import { openLetters, type Group, type Span } from "../../api/documents";
import { useMay } from "../../api/session";
import { Button } from "../../parts/Button";
import { Icon } from "../../parts/Icon";
import { count } from "../../parts/numbers";
import { Sparkline } from "../../parts/Sparkline";
import { Time } from "../../parts/Time";
import type { GroupVerb } from "./GroupActions";
import styles from "./GroupRow.module.css";
import { StateBar } from "./StateBar";
import { trendName } from "./useTrends";

interface GroupRowProps {
  group: Group;
  trend: readonly number[] | undefined;
  span: Span;
  onAct: (verb: GroupVerb) => void;
}

export function GroupRow({ group, trend, span, onAct }: GroupRowProps) {
  const operator = useMay("operator");
  const open = openLetters(group.counts);
  return (
    <li className={styles.row}>
      <div className={styles.words}>
        <Link href={`/groups/${group.fingerprint}`} className={styles.title} data-group={group.fingerprint}>
          {group.errorType}
        </Link>
        <span className={styles.reason}>{group.reason || "no reason was given"}</span>
        <span className={styles.facts}>
          <span className={styles.queue}>
            <Icon name="topology" size={13} />
            {group.queue ?? "unknown queue"}
          </span>
          {group.note?.assignee && (
            <span>
              <Icon name="user" size={13} />
              {group.note.assignee}
            </span>
          )}
          {group.note?.note && (
            <span className={styles.note} title={group.note.note}>
              <Icon name="edit" size={13} />
              {group.note.note}
            </span>
          )}
        </span>
      </div>
      <div className={styles.trend}>{trend && <Sparkline counts={trend} name={trendName(trend, span)} />}</div>
      <div className={styles.seen}>
        <span>
          last <Time at={group.lastSeenAt} />
        </span>
        <span>
          first <Time at={group.firstSeenAt} />
        </span>
      </div>
      <div className={styles.numbers}>
        <span className={styles.open}>
          <b>{count(open)}</b> open
        </span>
        <StateBar counts={group.counts} />
      </div>
      {operator && (
        <div className={styles.acts}>
          <Button icon="send" disabled={open === 0} onClick={() => onAct("replay")} aria-label={`Replay ${group.errorType}`}>
            Replay
          </Button>
          <Button
            kind="quiet"
            icon="discard"
            iconOnly
            disabled={open === 0}
            onClick={() => onAct("discard")}
          >{`Discard ${group.errorType}`}</Button>
        </div>
      )}
    </li>
  );
}
