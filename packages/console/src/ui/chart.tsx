import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import { useStore } from "../lib/store.ts";
import { appearance, resolvedColor } from "../lib/theme.ts";

export interface ChartSeries {
  label: string;
  values: readonly number[];
}

interface ChartProps {
  label: string;
  /** Unix seconds, one for each value. */
  times: readonly number[];
  series: readonly ChartSeries[];
  format(value: number): string;
  formatTime(seconds: number): string;
  /** Called with the range that was dragged over. */
  onZoom?(fromSeconds: number, toSeconds: number): void;
}

const HEIGHT = 260;
export const SERIES_MAX = 6;
export const seriesColor = (index: number) => `var(--series-${(index % SERIES_MAX) + 1})`;

interface Tip {
  left: number;
  index: number;
}

/** Running sums from the bottom up, so that each band stands on the ones below it. */
function stacked(series: readonly ChartSeries[]): number[][] {
  let below: number[] = [];
  return series.map(({ values }) => {
    below = values.map((value, i) => value + (below[i] ?? 0));
    return below;
  });
}

/** Stacked bars over time with a crosshair that names every value, and a brush to zoom. */
export function StackedChart({ label, times, series, format, formatTime, onZoom }: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const [tip, setTip] = useState<Tip | null>(null);
  const shown = useStore(appearance);
  const zoom = useRef(onZoom);
  zoom.current = onZoom;

  // biome-ignore lint/correctness/useExhaustiveDependencies: `shown` repaints when the theme changes
  useEffect(() => {
    const element = host.current;
    if (!element || times.length === 0) return;
    const sums = stacked(series);
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
        cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
        scales: {
          x: { time: true, range: () => [times[0]! - gapSeconds / 2, times.at(-1)! + gapSeconds / 2] },
          y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] },
        },
        axes: [
          {
            ...axis,
            grid: { show: false },
            values: (_, ticks) => ticks.map((tick) => formatTime(tick)),
            space: 70,
          },
          { ...axis, values: (_, ticks) => ticks.map(format), size: 64 },
        ],
        // The tallest sum is painted first, so that the lower ones lie over it.
        series: [
          {},
          ...sums.map((_, i) => {
            const color = resolvedColor(`--series-${((sums.length - 1 - i) % SERIES_MAX) + 1}`);
            return { fill: color, stroke: color, width: 0, paths: bars, points: { show: false } };
          }),
        ],
        hooks: {
          setCursor: [
            (self) => {
              const { idx, left } = self.cursor;
              setTip(idx == null || left == null || left < 0 ? null : { index: idx, left: left + 64 });
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
  }, [times, series, shown, format, formatTime]);

  return (
    <figure className="chart" aria-label={label}>
      <div ref={host} />
      {tip && (
        <ChartTip
          tip={tip}
          times={times}
          series={series}
          format={format}
          formatTime={formatTime}
          width={host.current?.clientWidth ?? 0}
        />
      )}
    </figure>
  );
}

function ChartTip({
  tip,
  times,
  series,
  format,
  formatTime,
  width,
}: { tip: Tip; width: number } & Pick<ChartProps, "times" | "series" | "format" | "formatTime">) {
  const total = series.reduce((sum, { values }) => sum + (values[tip.index] ?? 0), 0);
  const side = tip.left > width / 2 ? { right: width - tip.left + 12 } : { left: tip.left + 12 };
  return (
    <div className="chart-tip stack tight" style={{ top: 8, ...side }}>
      <div className="row">
        <strong>{formatTime(times[tip.index] ?? 0)}</strong>
        <strong>{format(total)}</strong>
      </div>
      {series.length > 1 && (
        <ul className="chart-legend">
          {series.map(({ label, values }, i) => (
            <li key={label} className="row grow">
              <span className="row ellipsis">
                <i style={{ background: seriesColor(i) }} />
                <span className="ellipsis">{label}</span>
              </span>
              <b>{format(values[tip.index] ?? 0)}</b>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
