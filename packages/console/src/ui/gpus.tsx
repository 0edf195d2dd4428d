import { percent } from "../lib/format.ts";
import type { Gpu } from "../lib/records.ts";
import { Meter } from "./states.tsx";

const BUSY = 0.9;
export const gigabytes = (mb: number) => (mb / 1024).toFixed(mb < 10_240 ? 1 : 0);

/** Each GPU's load and memory as two bars. */
export function GpuBars({
  gpus,
  old = false,
}: {
  gpus: readonly Gpu[] /** What was last heard of a node that is gone. */;
  old?: boolean;
}) {
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
              <Meter share={load} label={`Load of GPU ${index}`} tone={load > BUSY ? "warn" : "good"} />
              <span className="muted small">{utilization === null ? "unknown" : percent(load)}</span>
            </span>
            <span className="gpu-bar">
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
          </li>
        );
      })}
    </ul>
  );
}
