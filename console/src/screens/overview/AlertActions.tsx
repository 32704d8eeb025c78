import { useEffect, useRef, useState } from "react";
import { post } from "../../api/client";
import type { Alert } from "../../api/documents";
import { useMay } from "../../api/session";
import { alertsKey } from "../../api/useAlerts";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Time } from "../../parts/Time";
import styles from "./Alerts.module.css";
import { SilenceAlert } from "./SilenceAlert";

/** Whether an alert is silenced, by whom and why; an operator silences it, or hears it again. */
export function AlertActions({ alert }: { alert: Alert }) {
  const { name, silence } = alert;
  const operator = useMay("operator");
  const [silencing, setSilencing] = useState(false);
  const hearing = useChange({
    change: (_: null, key) => post("/api/v1/alerts/hear", { name }, {}, { key }),
    touches: [alertsKey],
    done: () => `${name} is heard again`,
  });
  // Who is silenced or heard moves in the list, and what moves loses the focus: it is given back.
  const act = useRef<HTMLSpanElement>(null);
  const acted = useRef(false);
  const silenced = silence !== null;
  useEffect(() => {
    if (acted.current && document.activeElement === document.body) act.current?.querySelector("button")?.focus();
    acted.current = false;
  }, [silenced]);
  const change = () => {
    acted.current = true;
    if (silenced) hearing.make(null);
    else setSilencing(true);
  };
  return (
    <>
      {operator && (
        <span className={styles.act} ref={act}>
          <Button kind="quiet" busy={hearing.busy} onClick={change}>
            {silenced ? "Hear again" : "Silence…"}
            <span className="unseen"> {name}</span>
          </Button>
        </span>
      )}
      {silence && (
        <span className={styles.silence}>
          Silenced by {silence.by}, ends <Time at={silence.until} />
          {silence.reason && `: ${silence.reason}`}
        </span>
      )}
      {hearing.problem && <ErrorNotice error={hearing.problem} />}
      {silencing && <SilenceAlert name={name} onClose={() => setSilencing(false)} />}
    </>
  );
}
