// The chart itself, by uPlot. It is told new numbers in place; only another theme makes it anew.
// Pointed at by mouse, finger or the arrow keys, it tells which bucket that is.
import { useEffect, useRef, type KeyboardEvent } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useColours } from "../../parts/useColours";
import styles from "./RatesChart.module.css";

export interface Buckets {
  start: string;
  seconds: number;
  arrivals: readonly number[];
  resolutions: readonly number[];
}

interface RatesChartProps {
  found: Buckets;
  onPoint: (bucket: number | null) => void;
  /** What it shows, in words. */
  name: string;
}

const COLOURS = ["accent", "good", "line", "text-faint", "surface"] as const;
interface Size {
  width: number;
  height: number;
}

type Colours = Record<(typeof COLOURS)[number], string>;

export function RatesChart({ found, onPoint, name }: RatesChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const told = useRef(onPoint);
  const colours = useColours(COLOURS);
  const data = useRef(dataOf(found));
  data.current = dataOf(found);
  useEffect(() => {
    told.current = onPoint;
  });
  useEffect(() => {
    const element = frame.current!;
    const made = new uPlot(optionsOf(colours, sizeOf(element), told), data.current, element);
    plot.current = made;
    const sizes = new ResizeObserver(() => made.setSize(sizeOf(element)));
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [colours]);
  useEffect(() => plot.current?.setData(dataOf(found)), [found.start, found.seconds, found.arrivals, found.resolutions]);
  return (
    <div
      ref={frame}
      className={styles.chart}
      role="img"
      aria-label={name}
      tabIndex={0}
      onKeyDown={(event) => plot.current && step(plot.current, event)}
      onBlur={() => plot.current?.setCursor({ left: -10, top: -10 })}
    />
  );
}

function sizeOf(element: HTMLElement): Size {
  return { width: element.clientWidth, height: element.clientHeight };
}

function dataOf({ start, seconds, arrivals, resolutions }: Buckets): uPlot.AlignedData {
  const first = Date.parse(start) / 1000;
  return [arrivals.map((_, at) => first + at * seconds), [...arrivals], [...resolutions]];
}

function step(plot: uPlot, event: KeyboardEvent): void {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const times = plot.data[0];
  if (by === undefined || times.length === 0) return;
  event.preventDefault();
  const now = plot.cursor.idx ?? (by > 0 ? -1 : times.length);
  const at = Math.min(times.length - 1, Math.max(0, now + by));
  plot.setCursor({ left: plot.valToPos(times[at]!, "x"), top: 10 });
}

function optionsOf(
  colours: Colours,
  size: Size,
  told: { current: (bucket: number | null) => void },
): uPlot.Options {
  const font = "11px 'Inter Variable', system-ui, sans-serif";
  const axis = { stroke: colours["text-faint"], font, ticks: { show: false } };
  const area = (colour: string): uPlot.Series => ({
    stroke: colour,
    width: 1.75,
    fill: (plot) => shade(plot, colour),
    paths: uPlot.paths.spline!(),
    points: { show: false },
  });
  return {
    ...size,
    padding: [8, 20, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      drag: { x: false, y: false },
      points: { size: 7, fill: colours.surface, width: 2 },
    },
    scales: { y: { range: (_, __, most) => [0, Math.max(4, most * 1.1)] } },
    axes: [
      { ...axis, size: 30, grid: { show: false }, space: 70, values: (_, times) => clock(times) },
      {
        ...axis,
        size: 44,
        space: 48,
        grid: { stroke: colours.line, width: 1 },
        incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6],
      },
    ],
    series: [{}, area(colours.accent), area(colours.good)],
    hooks: { setCursor: [(plot) => told.current(plot.cursor.idx ?? null)] },
  };
}

/** The colour, fading towards the ground. */
function shade(plot: uPlot, colour: string): CanvasGradient {
  const { top, height } = plot.bbox;
  const fading = plot.ctx.createLinearGradient(0, top, 0, top + height);
  fading.addColorStop(0, colour.replace("rgb(", "rgba(").replace(")", ", 0.28)"));
  fading.addColorStop(1, colour.replace("rgb(", "rgba(").replace(")", ", 0.02)"));
  return fading;
}

const DAY = 86_400;

function clock(times: readonly number[]): string[] {
  const days = times.length > 1 && times[1]! - times[0]! >= DAY;
  return times.map((time) => {
    const at = new Date(time * 1000);
    const midnight = at.getHours() === 0 && at.getMinutes() === 0;
    return days || midnight
      ? at.toLocaleDateString([], { day: "numeric", month: "short" })
      : at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  });
}
