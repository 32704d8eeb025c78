// Breakers: where nothing is sent because everything failed there, and an operator's override.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get, post } from "../../api/client";
import type { Breaker } from "../../api/documents";
import { useMay } from "../../api/session";
import { useChange } from "../../api/useChange";
import { Button } from "../../parts/Button";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { counted } from "../../parts/numbers";
import { Section, Waiting } from "../../parts/Page";
import { Badge, type Tone } from "../../parts/StateBadge";
import { Time } from "../../parts/Time";
import { HoldBreaker } from "./HoldBreaker";
import styles from "./Lists.module.css";

const EVERY = 10_000;

export function Breakers() {
  const operator = useMay("operator");
  const [holding, setHolding] = useState(false);
  const breakers = useQuery({
    queryKey: ["breakers"],
    queryFn: ({ signal }) => get("/api/v1/breakers", {}, { signal }),
    refetchInterval: EVERY,
  });
  const found = breakers.data?.items ?? [];
  return (
    <Section
      title="Breakers"
      actions={
        operator && (
          <Button kind="quiet" icon="pause" onClick={() => setHolding(true)}>
            Hold a queue
          </Button>
        )
      }
      flush
    >
      {breakers.error && <ErrorNotice error={breakers.error} retry={() => void breakers.refetch()} />}
      {breakers.isPending && <Waiting lines={3} />}
      {breakers.data && found.length === 0 && (
        <EmptyState icon="check" title="Every destination is open to letters">
          <p>Five failures in a row at a queue hold back what is sent there, and it appears here.</p>
        </EmptyState>
      )}
      <ul className={styles.list}>
        {[...found].sort(byUrgency).map((breaker) => (
          <li key={breaker.queue}>
            <Line breaker={breaker} operator={operator} />
          </li>
        ))}
      </ul>
      {holding && <HoldBreaker onClose={() => setHolding(false)} />}
    </Section>
  );
}

const ORDER = { open: 0, half_open: 1, closed: 2 };

function byUrgency(one: Breaker, other: Breaker): number {
  return ORDER[one.forced ?? one.state] - ORDER[other.forced ?? other.state] || one.queue.localeCompare(other.queue);
}

function Line({ breaker, operator }: { breaker: Breaker; operator: boolean }) {
  const { queue } = breaker;
  const force = useChange({
    change: (position: "open" | "closed", key) => post("/api/v1/breakers/force", { queue, position }, {}, { key }),
    touches: [["breakers"]],
    done: (_, position) => `${queue} is held ${position}`,
  });
  const release = useChange({
    change: (_: null, key) => post("/api/v1/breakers/release", { queue }, {}, { key }),
    touches: [["breakers"]],
    done: () => `${queue} is released`,
  });
  const now = breaker.forced ?? breaker.state;
  const problem = force.problem ?? release.problem;
  return (
    <div className={styles.stack}>
      <div className={styles.head}>
        <b>{queue}</b>
        <Badge tone={TONES[now]}>{breaker.forced ? `held ${now}` : now.replace("_", "-")}</Badge>
        {operator && (
          <span className={styles.acts}>
            {breaker.forced ? (
              <Button kind="quiet" busy={release.busy} onClick={() => release.make(null)}>
                Release
              </Button>
            ) : (
              <>
                {now !== "open" && (
                  <Button kind="quiet" busy={force.busy} onClick={() => force.make("open")}>
                    Hold open
                  </Button>
                )}
                {now !== "closed" && (
                  <Button kind="quiet" busy={force.busy} onClick={() => force.make("closed")}>
                    Let all pass
                  </Button>
                )}
              </>
            )}
          </span>
        )}
      </div>
      <span className={styles.faint}>{why(breaker)}</span>
      {problem && <ErrorNotice error={problem} />}
    </div>
  );
}

const TONES: Record<Breaker["state"], Tone> = { open: "failed", half_open: "manual", closed: "resolved" };

function why(breaker: Breaker) {
  if (breaker.forced === "open") return "An operator holds it: nothing is sent there until it is released.";
  if (breaker.forced === "closed") return "An operator lets everything pass, whatever fails, until it is released.";
  const failures = `${counted(breaker.failures, "failure")} in a row`;
  if (breaker.state === "closed") return `${failures}; letters pass.`;
  return (
    <>
      {failures}, opened <Time at={breaker.openedAt} />.{" "}
      {breaker.state === "open" ? "One letter is tried " : "One letter is being tried; the next "}
      <Time at={breaker.nextProbeAt} />.
    </>
  );
}
