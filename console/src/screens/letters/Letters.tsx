import { STATES, wordOf } from "../../api/documents";
import { Button } from "../../parts/Button";
import { EmptyState } from "../../parts/EmptyState";
import { ErrorNotice } from "../../parts/ErrorNotice";
import { Choices, FilterBar, SearchInput } from "../../parts/FilterBar";
import { Page, Waiting } from "../../parts/Page";
import { useLetterFilters } from "./filters";
import { LetterTable } from "./LetterTable";
import { useLetterPages } from "./useLetterPages";

export default function Letters() {
  const filters = useLetterFilters();
  const pages = useLetterPages(filters);
  return (
    <Page title="Letters" fills>
      <FilterBar>
        <SearchInput
          label="Search letters"
          value={filters.search}
          onChange={(search) => filters.set({ search }, { replace: true })}
        />
        <Choices
          label="States"
          options={STATES.map((state) => ({ value: state, text: wordOf(state) }))}
          chosen={filters.status}
          onChange={(status) => filters.set({ status: status.map(wordOf) })}
        />
      </FilterBar>
      {pages.error && <ErrorNotice error={pages.error} retry={pages.readAgain} />}
      {!pages.ready && !pages.error && <Waiting lines={10} />}
      {pages.ready && pages.letters.length === 0 && (
        <EmptyState icon="letters" title={filters.any ? "No letter matches" : "There are no letters"}>
          {filters.any ? (
            <Button onClick={filters.clear}>Clear the filters</Button>
          ) : (
            <p>What ends in the dead letter queue appears here by itself, as long as a collector runs.</p>
          )}
        </EmptyState>
      )}
      {pages.letters.length > 0 && (
        <LetterTable letters={pages.letters} more={pages.more} readMore={pages.readMore} />
      )}
    </Page>
  );
}
