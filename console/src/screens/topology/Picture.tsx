// The topology as a picture: messages go from left to right, and back along the top.
import { counted, shortly } from "../../parts/numbers";
import { lasting } from "../../parts/Time";
import { YOURS, type Edge, type Flow, type Node } from "./flow";
import styles from "./Picture.module.css";

const WIDE = 148;
const HIGH = 48;
const ACROSS = 180;
const DOWN = 78;
const EDGE = 14;

export function Picture({ flow }: { flow: Flow }) {
  const width = (flow.columns - 1) * ACROSS + WIDE + 2 * EDGE;
  const height = (flow.rows - 1) * DOWN + HIGH + 2 * EDGE;
  const at = new Map(flow.nodes.map((node) => [node.id, node]));
  return (
    <svg className={styles.picture} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={inWords(flow)}>
      <defs>
        <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
          <path d="M0 0.5 7.5 4 0 7.5z" className={styles.tip} />
        </marker>
      </defs>
      {flow.edges.map((edge) => (
        <Line key={`${edge.from} ${edge.to}`} edge={edge} from={at.get(edge.from)!} to={at.get(edge.to)!} />
      ))}
      {flow.nodes.map((node) => (
        <Box key={node.id} node={node} />
      ))}
    </svg>
  );
}

function Box({ node }: { node: Node }) {
  const { x, y } = corner(node);
  const drifted = node.standing !== "same" && node.standing !== "unknown";
  const busy = node.ready !== null && node.ready > 0;
  return (
    <g
      className={`${styles.node} ${styles[node.kind]} ${drifted ? styles.drifted : ""}`}
      transform={`translate(${x} ${y})`}
    >
      <title>{`${node.kind === "yours" ? "" : `${node.kind} `}${node.name}: ${about(node)}`}</title>
      <rect width={WIDE} height={HIGH} rx={node.kind === "exchange" ? HIGH / 2 : 8} />
      <text x={node.kind === "exchange" ? WIDE / 2 : 12} y={20} className={styles.name}>
        {cut(node.name, node.kind === "exchange" ? 18 : 17)}
      </text>
      <text x={node.kind === "exchange" ? WIDE / 2 : 12} y={37} className={styles.about}>
        {about(node)}
      </text>
      {busy && (
        <g transform={`translate(${WIDE - 8} 0)`}>
          <rect className={styles.count} x={-badge(node.ready!)} y={-9} width={badge(node.ready!)} height={18} rx={9} />
          <text className={styles.number} x={-badge(node.ready!) / 2} y={4}>
            {shortly(node.ready!)}
          </text>
        </g>
      )}
    </g>
  );
}

function badge(number: number): number {
  return 14 + 6.5 * shortly(number).length;
}

function about(node: Node): string {
  if (node.standing !== "same" && node.standing !== "unknown") return node.standing;
  if (node.kind === "yours") return "where messages fail";
  if (node.kind === "exchange") return "exchange";
  if (node.waits !== null) return `waits ${lasting(node.waits)}`;
  return node.consumers === null ? "queue" : counted(node.consumers, "consumer");
}

function Line({ edge, from, to }: { edge: Edge; from: Node; to: Node }) {
  const drifted = edge.standing !== "same" && edge.standing !== "unknown";
  return (
    <path
      d={way(from, to)}
      markerEnd="url(#tip)"
      className={`${styles.edge} ${edge.kind === "retrier" ? styles.retrier : ""} ${drifted ? styles.broken : ""}`}
    >
      <title>{`${edge.kind}${drifted ? `, ${edge.standing}` : ""}`}</title>
    </path>
  );
}

/** Forwards it leaves at the right and arrives at the left; up and down at the sides that face. */
function way(from: Node, to: Node): string {
  const a = corner(from);
  const b = corner(to);
  const half = HIGH / 2;
  if (to.id === YOURS) {
    const x = b.x + WIDE / 2;
    return `M${a.x} ${a.y + half} H${x + 14} Q${x} ${a.y + half} ${x} ${a.y + half + 14} V${b.y - 2}`;
  }
  if (to.column > from.column && to.row <= from.row + 1.5) {
    const bend = (b.x - a.x - WIDE) / 2;
    const start = `${a.x + WIDE} ${a.y + half}`;
    return `M${start} C${a.x + WIDE + bend} ${a.y + half} ${b.x - bend} ${b.y + half} ${b.x - 2} ${b.y + half}`;
  }
  if (to.row > from.row) {
    const x = a.x + WIDE / 2;
    return `M${x} ${a.y + HIGH} V${b.y + half - 14} Q${x} ${b.y + half} ${x + 14} ${b.y + half} H${b.x - 2}`;
  }
  // Back, along the top: beside the column, then to the left.
  const x = a.x + WIDE + 16;
  const start = `M${a.x + WIDE} ${a.y + half} H${x - 8} Q${x} ${a.y + half} ${x} ${a.y + half - 8}`;
  return `${start} V${b.y + half + 14} Q${x} ${b.y + half} ${x - 14} ${b.y + half} H${b.x + WIDE + 2}`;
}

function corner({ column, row }: Node): { x: number; y: number } {
  return { x: EDGE + column * ACROSS, y: EDGE + row * DOWN };
}

function cut(name: string, most: number): string {
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

function inWords(flow: Flow): string {
  const queues = flow.nodes.filter(({ kind }) => kind === "queue").length;
  const drifted = [...flow.nodes, ...flow.edges].filter(({ standing }) => standing !== "same" && standing !== "unknown");
  const drift = drifted.length > 0 ? `${drifted.length} of them not as they should be` : "all as they should be";
  return `Messages go from your queues through ${counted(queues, "queue")} and back; ${drift}. The lists below have each.`;
}
