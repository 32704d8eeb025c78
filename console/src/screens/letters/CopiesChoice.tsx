import { Choices } from "../../parts/FilterBar";
import type { LetterFilters } from "./filters";

interface CopiesChoiceProps {
  filters: Pick<LetterFilters, "possibleDuplicate" | "set">;
  /** Whether Back goes to what was shown before the choice. */
  replace?: boolean;
}

/** Only letters that may be a second copy of another: on or off. */
export function CopiesChoice({ filters, replace = false }: CopiesChoiceProps) {
  return (
    <Choices
      label="Copies"
      options={[{ value: "true", text: "possible duplicates" }]}
      chosen={filters.possibleDuplicate ? ["true"] : []}
      onChange={(chosen) => filters.set({ possibleDuplicate: chosen }, { replace })}
    />
  );
}
