import type { Probe } from "../lib/activity.ts";
import { exactTime, plural, seconds } from "../lib/format.ts";

const PLACES = 60;
const HEIGHT = 24;
/** The fastest probe is still seen. */
const HEIGHT_MIN = 5;
const PITCH = 4;
const BAR = 3;

const inWords = ({ at, state, latency_ms, detail }: Probe) =>
  [`${exactTime(at)}: ${state}`, latency_ms !== null && seconds(latency_ms), detail]
    .filter(Boolean)
    .join(", ");

/** One bar a probe, the latest at the right: as tall as it took long, and full where it failed. */
export function ProbeStrip({ name, probes }: { name: string; probes: readonly Probe[] }) {
  const slowestMs = Math.max(1, ...probes.map(({ latency_ms }) => latency_ms ?? 0));
  const bad = probes.filter(({ state }) => state !== "Healthy").length;
  const latest = probes.at(-1);
  const summary = latest
    ? `${plural(probes.length, "probe")} of ${name}, ${bad} not healthy; the latest: ${inWords(latest)}`
    : `${name} has not been probed yet`;
  return (
    <svg
      className="probe-strip"
      viewBox={`0 0 ${PLACES * PITCH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={summary}
    >
      {Array.from({ length: PLACES }, (_, place) => {
        const probe = probes[probes.length - PLACES + place];
        const share = probe ? (probe.latency_ms ?? 0) / slowestMs : 0;
        const healthy = probe?.state === "Healthy";
        const height = probe && !healthy ? HEIGHT : HEIGHT_MIN + share * (HEIGHT - HEIGHT_MIN) * 0.8;
        return (
          <rect
            // biome-ignore lint/suspicious/noArrayIndexKey: the slots are places on a fixed axis
            key={place}
            className={probe ? probe.state.toLowerCase() : "none"}
            x={place * PITCH}
            y={HEIGHT - (probe ? height : 2)}
            width={BAR}
            height={probe ? height : 2}
          >
            {probe && <title>{inWords(probe)}</title>}
          </rect>
        );
      })}
    </svg>
  );
}
