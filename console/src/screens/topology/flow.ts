// The picture's content, from what the API tells: which part stands where, and what leads where.
//
// Names are settings, so parts are known by what they do: a tier is a queue that messages wait in and
// leave by dead-lettering; what they arrive in then are the return queues; where all others dead-letter
// to is the dead letter exchange.
import type { Finding, Topology } from "../../api/documents";

export type Standing = Finding["standing"];

export interface Node {
  id: string;
  name: string;
  kind: "exchange" | "queue" | "yours";
  standing: Standing;
  ready: number | null;
  consumers: number | null;
  /** Milliseconds that messages wait in it. */
  waits: number | null;
  column: number;
  row: number;
}

export interface Edge {
  from: string;
  to: string;
  /** `retrier`: Redrive itself moves messages there. */
  kind: "binding" | "dead letters" | "retrier";
  standing: Standing;
}

export interface Flow {
  nodes: readonly Node[];
  edges: readonly Edge[];
  columns: number;
  rows: number;
}

const TTL = "x-message-ttl";
const DLX = "x-dead-letter-exchange";
export const YOURS = "yours";

export function flowOf(topology: Topology): Flow {
  const parts = new Parts(topology);
  const tiers = parts.tiers();
  const rows = Math.max(3, tiers.length + 1);
  const middle = (tiers.length + 1) / 2;
  const nodes: Node[] = [];
  const edges: Edge[] = [];
  const place = (finding: Finding | undefined, column: number, row: number) => {
    if (finding?.name && !nodes.some(({ id }) => id === idOf(finding))) nodes.push(parts.node(finding, column, row));
  };
  nodes.push({
    id: YOURS, name: "your queues", kind: "yours", standing: "same",
    ready: null, consumers: null, waits: null, column: 0, row: middle,
  });
  const dead = parts.deadExchange();
  const delays = parts.exchangesInto(tiers);
  const returns = tiers.map((tier) => parts.exchange(tier.arguments?.[DLX]));
  const taken = new Set([dead, ...delays, ...returns].map((each) => each?.name));
  const returnQueues = returns.map((exchange) => parts.queuesOf(exchange)[0]);
  const retries = parts.exchanges().filter(({ name }) => !taken.has(name) && parts.queuesOf({ name }).length > 0);
  const backs = parts.exchanges().filter(({ name }) => !taken.has(name) && parts.queuesOf({ name }).length === 0);
  const retryQueues = retries.flatMap((exchange) => parts.queuesOf(exchange));
  backs.forEach((exchange, at) => place(exchange, 3 + at, 0));
  retries.forEach((exchange, at) => place(exchange, 1, middle + at));
  retryQueues.forEach((queue, at) => place(queue, 2, middle + at));
  delays.forEach((exchange, at) => place(exchange, 3, middle + at));
  tiers.forEach((tier, at) => place(tier, 4, at + 1));
  returns.forEach((exchange, at) => place(exchange, 5, at + 1));
  returnQueues.forEach((queue, at) => place(queue, 6, at + 1));
  place(dead, 3, rows);
  parts.queuesOf(dead).forEach((queue, at) => place(queue, 4 + at, rows));

  const known = (id: string) => nodes.some((node) => node.id === id);
  const link = (from: string, to: string, kind: Edge["kind"], standing: Standing = "same") => {
    const already = edges.find((edge) => edge.from === from && edge.to === to);
    if (already && already.standing === "same") already.standing = standing;
    if (!already && known(from) && known(to)) edges.push({ from, to, kind, standing });
  };
  for (const binding of parts.bindings()) {
    link(`exchange ${binding.exchange}`, `queue ${binding.queue}`, "binding", binding.standing);
  }
  for (const tier of tiers) link(idOf(tier), `exchange ${String(tier.arguments?.[DLX])}`, "dead letters", tier.standing);
  for (const retry of retries) link(YOURS, idOf(retry), "dead letters");
  for (const queue of retryQueues) {
    for (const delay of delays) link(idOf(queue), idOf(delay), "retrier");
    if (dead) link(idOf(queue), idOf(dead), "retrier");
  }
  for (const back of backs) {
    for (const queue of returnQueues) if (queue) link(idOf(queue), idOf(back), "retrier");
    link(idOf(back), YOURS, "binding");
  }
  return { nodes, edges, columns: 7, rows: rows + 1 };
}

export function idOf(finding: { part: Finding["part"]; name?: string | null | undefined }): string {
  return `${finding.part} ${finding.name}`;
}

class Parts {
  constructor(private topology: Topology) {}

  tiers(): Finding[] {
    const tiers = this.of("queue").filter((queue) => queue.arguments?.[TTL] !== undefined && queue.arguments[DLX]);
    return tiers.sort((one, other) => Number(one.arguments?.[TTL]) - Number(other.arguments?.[TTL]));
  }

  exchanges(): Finding[] {
    return this.of("exchange");
  }

  bindings(): Finding[] {
    return this.of("binding");
  }

  exchange(name: unknown): Finding | undefined {
    return this.of("exchange").find((each) => each.name === name);
  }

  exchangesInto(queues: readonly Finding[]): Finding[] {
    return this.exchanges().filter((exchange) => this.queuesOf(exchange).some((queue) => queues.includes(queue)));
  }

  queuesOf(exchange: { name?: string | null } | undefined): Finding[] {
    const names = new Set(this.bindings().filter((each) => each.exchange === exchange?.name).map(({ queue }) => queue));
    return this.of("queue").filter(({ name }) => names.has(name));
  }

  /** Where most queues that are no tiers dead-letter to. */
  deadExchange(): Finding | undefined {
    const tiers = this.tiers();
    const targets = this.of("queue").filter((queue) => !tiers.includes(queue)).map((queue) => queue.arguments?.[DLX]);
    const ranked = targets.sort((a, b) => count(targets, b) - count(targets, a));
    return this.exchange(ranked.find((each) => each !== undefined));
  }

  node(finding: Finding, column: number, row: number): Node {
    const name = finding.name ?? "";
    const counts = finding.part === "queue" ? this.topology.counts[name] : undefined;
    const waits = finding.arguments?.[TTL];
    return {
      id: idOf(finding), name, kind: finding.part === "queue" ? "queue" : "exchange", standing: finding.standing,
      ready: counts?.ready ?? null, consumers: counts?.consumers ?? null,
      waits: typeof waits === "number" ? waits : null, column, row,
    };
  }

  private of(part: Finding["part"]): Finding[] {
    return this.topology.parts.filter((each) => each.part === part);
  }
}

function count(all: readonly unknown[], one: unknown): number {
  return all.filter((each) => each === one).length;
}
