import { EmptyState } from "../../parts/EmptyState";

export function NothingOpen() {
  return (
    <EmptyState icon="check" title="Nothing is open">
      <p>What ends in the dead letter queue appears here by itself.</p>
    </EmptyState>
  );
}
