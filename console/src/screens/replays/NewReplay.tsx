// A replay from a filter: which letters, how many that is now, and then the dry run.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { Link, useLocation } from "wouter";
import { get } from "../../api/client";
import { wordOf, type State } from "../../api/documents";
import { Button } from "../../parts/Button";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Field, inputClass } from "../../parts/Field";
import { Choices } from "../../parts/FilterBar";
import { counted } from "../../parts/numbers";
import { Page, Section } from "../../parts/Page";
import { ReplayDialog } from "../letters/actions/ReplayDialog";
import { CopiesChoice } from "../letters/CopiesChoice";
import { addressOfFilters, FIELDS, useLetterFilters, type FieldName } from "../letters/filters";
import { WrongFilters } from "../letters/WrongFilters";
import styles from "./NewReplay.module.css";

const REPLAYABLE = ["dlq_pending", "dlq_manual", "dlq_failed", "dlq_resolved"] as const satisfies readonly State[];
const BY_DEFAULT: readonly State[] = ["dlq_pending", "dlq_manual", "dlq_failed"];
const PATIENCE = 350;

type Typed = Partial<Record<FieldName | "search", string>>;

export default function NewReplay() {
  const filters = useLetterFilters();
  const [, go] = useLocation();
  const [typed, setTyped] = useState<Typed>({ ...filters.values, search: filters.search });
  const [dialog, setDialog] = useState(false);
  const { set } = filters;
  const asRead = useRef(typed);
  useEffect(() => {
    // Not before somebody types: an address that cannot be meant would become another one that can.
    if (typed === asRead.current) return;
    const timer = window.setTimeout(
      () => set(Object.fromEntries(Object.entries(typed).map(([name, text]) => [name, text.trim()])), { replace: true }),
      PATIENCE,
    );
    return () => window.clearTimeout(timer);
  }, [typed, set]);
  const status = filters.status.length > 0 ? filters.status : BY_DEFAULT;
  const filter = { ...filters.selection, status: [...status] };
  const matched = useQuery({
    queryKey: ["letters", "count", JSON.stringify(filter)],
    queryFn: ({ signal }) => get("/api/v1/letters/count", { query: filter }, { signal }),
    retry: false,
    enabled: filters.faults.length === 0,
  });
  const wrong = filters.faults.length > 0;
  const number = wrong ? undefined : matched.data?.letters;
  return (
    <Page title="New replay" about="Choose letters. A dry run shows where each would go before anything is sent.">
      <form
        className={styles.form}
        onSubmit={(event) => {
          event.preventDefault();
          if (number) setDialog(true);
        }}
      >
        <Section title="Which letters">
          <div className={styles.fields}>
            <div className={styles.states}>
              <span id="states">States</span>
              <Choices
                label="States"
                options={REPLAYABLE.map((state) => ({ value: state, text: wordOf(state) }))}
                chosen={status}
                onChange={(chosen) => set({ status: chosen.map(wordOf) }, { replace: true })}
              />
              <CopiesChoice filters={filters} replace />
            </div>
            <Field label="Search" hint="A text anywhere in the letter.">
              {(ids) => (
                <input
                  {...ids}
                  className={inputClass}
                  autoFocus
                  value={typed.search ?? ""}
                  onChange={(event) => setTyped({ ...typed, search: event.target.value })}
                />
              )}
            </Field>
            {FIELDS.map(({ name, label, hint }) => (
              <Field key={name} label={label}>
                {(ids) => (
                  <input
                    {...ids}
                    className={inputClass}
                    placeholder={hint}
                    spellCheck={false}
                    autoCapitalize="none"
                    value={typed[name] ?? ""}
                    onChange={(event) => setTyped({ ...typed, [name]: event.target.value })}
                  />
                )}
              </Field>
            ))}
          </div>
        </Section>
        {wrong && <WrongFilters filters={filters} />}
        {matched.error && !wrong && <ErrorNotice error={matched.error} />}
        <div className={styles.foot}>
          <p role="status">
            {number === undefined ? (
              matched.error || wrong ? "" : "Counting…"
            ) : (
              <>
                <b>{counted(number, "letter")}</b> match{number === 1 ? "es" : ""}.{" "}
                {number > 0 && <Link href={`/letters${addressOfFilters(filter)}`}>Look at them</Link>}
              </>
            )}
          </p>
          <Button kind="main" type="submit" icon="search" disabled={!number}>
            Dry run
          </Button>
        </div>
      </form>
      {dialog && (
        <ReplayDialog
          chosen={{ filter }}
          onClose={() => setDialog(false)}
          onDone={(replay) => go(`/replays/${replay.id}`)}
        />
      )}
    </Page>
  );
}
