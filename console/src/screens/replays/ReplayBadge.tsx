import type { Replay } from "../../api/documents";
import { Badge, type Tone } from "../../parts/StateBadge";

const TONES: Record<Replay["state"], Tone> = {
  running: "processing",
  paused: "manual",
  done: "resolved",
  cancelled: "archived",
};

export function ReplayBadge({ state }: { state: Replay["state"] }) {
  return <Badge tone={TONES[state]}>{state}</Badge>;
}
