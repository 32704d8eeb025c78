import { Component, type ReactNode } from "react";
import { ErrorNotice } from "../parts/ErrorNotice";
import { Page } from "../parts/Page";

interface BoundaryProps {
  children: ReactNode;
  /** Elsewhere there may be no defect: another place is tried anew. */
  place: string;
}

/** A defect of one screen leaves the rest of the console usable. */
export class Boundary extends Component<BoundaryProps, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override componentDidUpdate(before: BoundaryProps) {
    if (before.place !== this.props.place && this.state.error !== null) this.setState({ error: null });
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <Page title="Something unforeseen happened">
        <ErrorNotice error={this.state.error} retry={() => window.location.reload()} />
      </Page>
    );
  }
}
