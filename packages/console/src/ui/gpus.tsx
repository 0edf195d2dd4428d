import { clockTime, percent } from "../lib/format.ts";
import type { Gpu, GpuPoint } from "../lib/records.ts";
import { Meter } from "./states.tsx";

const BUSY = 0.9;
export const gigabytes = (mb: number) => (mb / 1024).toFixed(mb < 10_240 ? 1 : 0);

const MINUTE_MS = 60_000;
const PLACES = 60;
const HEIGHT = 20;

/** The last hour, one bar a minute, the latest at the right. */
function Hour({ label, shares }: { label: string; shares: readonly { minute: number; share: number }[] }) {
  const last = shares.at(-1)?.minute ?? 0;
  const highest = Math.max(0, ...shares.map(({ share }) => share));
  return (
    <svg
      className="hour"
      viewBox={`0 0 ${PLACES * 4} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`${label} in the last hour, at most ${percent(highest)}`}
    >
      {shares.map(({ minute, share }) => (
        <rect
          key={minute}
          x={(PLACES - 1 - (last - minute)) * 4}
          y={HEIGHT - Math.max(1, share * HEIGHT)}
          width={3}
          height={Math.max(1, share * HEIGHT)}
        >
          <title>{`${clockTime(minute * MINUTE_MS)}: ${percent(share)}`}</title>
        </rect>
      ))}
    </svg>
  );
}

/** Each GPU's load and memory as two bars, and what they were in the last hour. */
export function GpuBars({
  gpus,
  history = [],
  old = false,
}: {
  gpus: readonly Gpu[];
  history?: readonly GpuPoint[];
  /** What was last heard of a node that is gone. */
  old?: boolean;
}) {
  const sharesOf = (index: number, shareOf: (at: GpuPoint["gpus"][number]) => number | null) =>
    history.flatMap(({ minute, gpus: at }) => {
      const found = at.find((each) => each.index === index);
      const share = found && shareOf(found);
      return share == null ? [] : { minute, share: Math.min(1, share) };
    });
  if (gpus.length === 0) return <span className="muted small">No GPU reported</span>;
  return (
    <ul className={old ? "gpus old" : "gpus"}>
      {gpus.map(({ index, name, utilization, memory_used_mb, memory_total_mb }) => {
        const load = (utilization ?? 0) / 100;
        const memory = memory_total_mb && memory_used_mb !== null ? memory_used_mb / memory_total_mb : 0;
        return (
          <li key={index}>
            <span className="small ellipsis" title={name}>
              {index}: {name}
            </span>
            <span className="gpu-bar">
              <span className="muted small">Load</span>
              <Meter share={load} label={`Load of GPU ${index}`} tone={load > BUSY ? "warn" : "good"} />
              <span className="muted small">{utilization === null ? "unknown" : percent(load)}</span>
            </span>
            <span className="gpu-bar">
              <span className="muted small">Memory</span>
              <Meter
                share={memory}
                label={`Memory of GPU ${index}`}
                tone={memory > BUSY ? "warn" : undefined}
              />
              <span className="muted small nowrap">
                {memory_used_mb === null || memory_total_mb === null
                  ? "unknown"
                  : `${gigabytes(memory_used_mb)} / ${gigabytes(memory_total_mb)} GB`}
              </span>
            </span>
            {history.length > 1 && (
              <span className="hours">
                <span className="muted small nowrap">Load, 1 h</span>
                <Hour
                  label={`Load of GPU ${index}`}
                  shares={sharesOf(index, (at) => at.utilization && at.utilization / 100)}
                />
                <span className="muted small nowrap">Memory, 1 h</span>
                <Hour
                  label={`Memory of GPU ${index}`}
                  shares={sharesOf(index, (at) =>
                    at.memory_used_mb === null || !memory_total_mb
                      ? null
                      : at.memory_used_mb / memory_total_mb,
                  )}
                />
              </span>
            )}
          </li>
        );
      })}
    </ul>
  );
}
