import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import type { PartsInWords } from "../lib/format.ts";
import { useStore } from "../lib/store.ts";
import { appearance, resolvedColor } from "../lib/theme.ts";
import { SERIES_MAX } from "./series.ts";

export interface ChartSeries {
  label: string;
  /** Null: there is none. */
  values: readonly (number | null)[];
  /** A custom property; absent: the series' own colour by its place. */
  color?: string;
}

interface ChartProps {
  label: string;
  /** Unix seconds, one for each value. */
  times: readonly number[];
  series: readonly ChartSeries[];
  /** The axis' marks, all with the same precision. */
  formatTicks(values: readonly number[]): string[];
  /** The values of one bar and their sum, which must add up. */
  formatParts(values: readonly number[]): PartsInWords;
  formatTime(seconds: number): string;
  /** The values are shares from 0 to 1: lines, not bars on top of each other. */
  isShare?: boolean;
  /** Called with the range that was dragged over. */
  onZoom?(fromSeconds: number, toSeconds: number): void;
}

const HEIGHT = 260;
const colorName = ({ color }: ChartSeries, index: number) => color ?? `--series-${(index % SERIES_MAX) + 1}`;

const AXIS_WIDTH = 64;

interface Tip {
  left: number;
  index: number;
}

/** Running sums from the bottom up, so that each band stands on the ones below it. */
function stacked(series: readonly ChartSeries[]): number[][] {
  let below: number[] = [];
  return series.map(({ values }) => {
    below = values.map((value, i) => (value ?? 0) + (below[i] ?? 0));
    return below;
  });
}

/** Stacked bars, or lines, over time with a crosshair that names every value, and a brush to zoom. */
export function TimeChart({
  label,
  times,
  series,
  formatTicks,
  formatParts,
  formatTime,
  isShare = false,
  onZoom,
}: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const [tip, setTip] = useState<Tip | null>(null);
  const shown = useStore(appearance);
  const zoom = useRef(onZoom);
  zoom.current = onZoom;

  // biome-ignore lint/correctness/useExhaustiveDependencies: `shown` repaints when the theme changes
  useEffect(() => {
    const element = host.current;
    if (!element || times.length === 0) return;
    const sums = isShare ? series.map(({ values }) => [...values]) : stacked(series);
    const axis = {
      stroke: resolvedColor("--text-2"),
      grid: { stroke: resolvedColor("--line"), width: 1 },
      ticks: { show: false },
    };
    const bars = uPlot.paths.bars!({ size: [0.66, 36], radius: 0.08 });
    const gapSeconds = times.length > 1 ? times[1]! - times[0]! : 86_400;
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        padding: [8, 8, 0, 0],
        cursor: {
          y: false,
          points: { show: false },
          drag: { x: true, y: false, setScale: false },
          // The crosshair stands on the bar whose values it names, not between two.
          move: (self, left, top) => {
            const time = left < 0 ? undefined : times[self.posToIdx(left)];
            return [time === undefined ? left : self.valToPos(time, "x"), top];
          },
        },
        scales: {
          x: { time: true, range: () => [times[0]! - gapSeconds / 2, times.at(-1)! + gapSeconds / 2] },
          y: { range: (_, __, max) => [0, max > 0 && !isShare ? max * 1.08 : 1] },
        },
        axes: [
          {
            ...axis,
            grid: { show: false },
            values: (_, ticks) => ticks.map((tick) => formatTime(tick)),
            // As wide as what stands there: with the hour it is twice as long as a day.
            space: Math.max(70, 8 * formatTime(times[0]!).length),
          },
          { ...axis, values: (_, ticks) => formatTicks(ticks), size: AXIS_WIDTH },
        ],
        // The tallest sum is painted first, so that the lower ones lie over it.
        series: [
          {},
          ...sums.map((_, i) => {
            const place = sums.length - 1 - i;
            const color = resolvedColor(colorName(series[place]!, place));
            return isShare
              ? { stroke: color, width: 2, spanGaps: true, points: { show: true, size: 6, fill: color } }
              : { fill: color, stroke: color, width: 0, paths: bars, points: { show: false } };
          }),
        ],
        hooks: {
          setCursor: [
            (self) => {
              const { idx, left } = self.cursor;
              setTip(
                idx == null || left == null || left < 0 ? null : { index: idx, left: left + AXIS_WIDTH },
              );
            },
          ],
          setSelect: [
            (self) => {
              const { left, width } = self.select;
              if (width < 8) return;
              zoom.current?.(self.posToVal(left, "x"), self.posToVal(left + width, "x"));
              self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      [[...times], ...sums.toReversed()] as uPlot.AlignedData,
      element,
    );
    const resize = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      plot.destroy();
      setTip(null);
    };
  }, [times, series, shown, isShare, formatTicks, formatTime]);

  return (
    <figure className="chart" aria-label={label}>
      <div ref={host} />
      {tip && (
        <ChartTip
          tip={tip}
          time={formatTime(times[tip.index] ?? 0)}
          series={series}
          formatParts={formatParts}
          width={host.current?.clientWidth ?? 0}
        />
      )}
    </figure>
  );
}

function ChartTip({
  tip,
  time,
  series,
  formatParts,
  width,
}: { tip: Tip; time: string; width: number } & Pick<ChartProps, "series" | "formatParts">) {
  const { parts, total } = formatParts(series.map(({ values }) => values[tip.index] ?? 0));
  const side = tip.left > width / 2 ? { right: width - tip.left + 12 } : { left: tip.left + 12 };
  return (
    <table className="chart-tip" style={{ top: 8, ...side }}>
      <thead>
        <tr>
          <th scope="row">{time}</th>
          <td>{total}</td>
        </tr>
      </thead>
      {series.length > 1 && (
        <tbody>
          {series.map((each, i) =>
            each.values[tip.index] ? (
              <tr key={each.label}>
                <th scope="row">
                  <i style={{ background: `var(${colorName(each, i)})` }} />
                  {each.label}
                </th>
                <td>{parts[i]}</td>
              </tr>
            ) : null,
          )}
        </tbody>
      )}
    </table>
  );
}
