import { Button } from "../../parts/Button";
import { Notice } from "../../parts/Notice";
import type { LetterFilters } from "./filters";
import styles from "./Letters.module.css";

/** The address asks for something that there is not: said, and nothing is shown in its place. */
export function WrongFilters({ filters }: { filters: LetterFilters }) {
  return (
    <Notice tone="danger" title="This address cannot be meant, so no letter is shown">
      <ul className={styles.faults}>
        {filters.faults.map((fault) => (
          <li key={fault}>{fault}</li>
        ))}
      </ul>
      <Button onClick={filters.clear}>Clear the filters</Button>
    </Notice>
  );
}
