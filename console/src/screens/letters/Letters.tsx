// Letters: any number of them, by any filter, picked and acted on.
import { useRef, useState } from "react";
import { STATES, wordOf } from "../../api/documents";
import { useMay } from "../../api/session";
import { useLedger } from "../../live/ledger";
import { Button } from "../../parts/Button";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Chip, Choices, FilterBar, SearchInput } from "../../parts/FilterBar";
import { count } from "../../parts/numbers";
import { Page, Waiting } from "../../parts/Page";
import { useShortcut } from "../../shortcuts/shortcuts";
import { CopiesChoice } from "./CopiesChoice";
import { FieldsDialog } from "./FieldsDialog";
import { addressOfFilters, FIELDS, useLetterFilters, type LetterFilters } from "./filters";
import styles from "./Letters.module.css";
import { LetterTable } from "./LetterTable";
import { SelectionBar } from "./SelectionBar";
import { useLetterPages } from "./useLetterPages";
import { useSelection } from "./useSelection";
import { WrongFilters } from "./WrongFilters";

export default function Letters() {
  const filters = useLetterFilters();
  const pages = useLetterPages(filters);
  const selection = useSelection(pages.letters, filters.selection, filters.text);
  const mayChange = useMay("operator");
  const wrong = filters.faults.length > 0;
  useShortcut("u", "Read the list again", pages.readAgain);
  return (
    <Page title="Letters" fills about={<About filters={filters} read={pages.letters.length} more={pages.more} />}>
      <Filters filters={filters} />
      {wrong && <WrongFilters filters={filters} />}
      {pages.error && <ErrorNotice error={pages.error} retry={pages.readAgain} />}
      {pages.changed && (
        <div className={styles.changed} role="status">
          Letters have come or changed since.
          <Button icon="replays" onClick={pages.readAgain}>
            Read again
          </Button>
        </div>
      )}
      {mayChange && (
        <SelectionBar selection={selection} more={pages.more || pages.letters.length > selection.number} />
      )}
      {!pages.ready && !pages.error && !wrong && <Waiting lines={12} />}
      {pages.ready && pages.letters.length === 0 && <NoLetters filters={filters} />}
      {pages.letters.length > 0 && (
        <LetterTable
          letters={pages.letters}
          more={pages.more}
          readMore={pages.readMore}
          selection={mayChange ? selection : null}
          list={filters.text}
          query={addressOfFilters(filters.selection)}
        />
      )}
    </Page>
  );
}

function About({ filters, read, more }: { filters: LetterFilters; read: number; more: boolean }) {
  const ledger = useLedger();
  if (filters.faults.length > 0) return "None shown";
  if (filters.any) return more ? `More than ${count(read)} match` : `${count(read)} match`;
  if (ledger === null) return "Newest first";
  const total = Object.values(ledger.states).reduce((sum, each) => sum + each, 0);
  return `${count(total)}, newest first`;
}

function Filters({ filters }: { filters: LetterFilters }) {
  const [open, setOpen] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  const ledger = useLedger();
  useShortcut("/", "Search letters", () => search.current?.focus());
  useShortcut("f", "Filter letters", () => setOpen(true));
  const set = FIELDS.filter(({ name }) => filters.values[name]);
  return (
    <>
      <FilterBar>
        <SearchInput
          ref={search}
          label="Search letters"
          placeholder="Search errors, queues, bodies"
          value={filters.search}
          onChange={(text) => filters.set({ search: text }, { replace: true })}
        />
        <Choices
          label="States"
          options={STATES.map((state) => ({
            value: state,
            text: (
              <>
                {wordOf(state)}
                {ledger && <span className={styles.count}>{count(ledger.states[state])}</span>}
              </>
            ),
          }))}
          chosen={filters.status}
          onChange={(status) => filters.set({ status: status.map(wordOf) })}
        />
        <CopiesChoice filters={filters} />
        <Button icon="filter" onClick={() => setOpen(true)}>
          Filters…
        </Button>
      </FilterBar>
      {(set.length > 0 || filters.ids.length > 0) && (
        <div className={styles.chips}>
          {set.map(({ name, label }) => (
            <Chip
              key={name}
              name={label}
              value={filters.values[name] ?? ""}
              onRemove={() => filters.set({ [name]: null })}
            />
          ))}
          {filters.ids.length > 0 && (
            <Chip name="Ids" value={count(filters.ids.length)} onRemove={() => filters.set({ id: null })} />
          )}
          <Button kind="quiet" onClick={filters.clear}>
            Clear all
          </Button>
        </div>
      )}
      {open && <FieldsDialog filters={filters} onClose={() => setOpen(false)} />}
    </>
  );
}

function NoLetters({ filters }: { filters: LetterFilters }) {
  if (filters.any) {
    return (
      <EmptyState icon="search" title="No letter matches">
        {FIELDS.some(({ name }) => filters.values[name]) && (
          <p>Filters look at whole values: <code>*timeout*</code> finds a word anywhere.</p>
        )}
        {filters.possibleDuplicate && (
          <p>Nothing says of a letter that matches the rest that it may be a second copy of another.</p>
        )}
        <Button onClick={filters.clear}>Clear the filters</Button>
      </EmptyState>
    );
  }
  return (
    <EmptyState icon="letters" title="There are no letters">
      <p>
        What ends in the dead letter queue appears here by itself while a collector runs (<code>redrive run</code>).
        To connect a queue: <code>redrive topology enroll</code>.
      </p>
    </EmptyState>
  );
}
