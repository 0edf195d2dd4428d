import { type Activity, useActivity } from "../../lib/activity.ts";
import { clockTime, count, plural } from "../../lib/format.ts";
import { Section } from "../../ui/page.tsx";
import { BlockSkeleton } from "../../ui/skeleton.tsx";
import { Loaded } from "../../ui/states.tsx";

type Minute = Activity["minutes"][number];
type Outcome = Exclude<keyof Minute, "at">;

const MINUTES = 60;
const HEIGHT = 96;
const PITCH = 10;
const BAR = 7.5;
/** A single failure among thousands of answers must still be seen. */
const HEIGHT_MIN = 2.5;

/** From the bottom up; what failed lies on top, where it catches the eye. */
const OUTCOMES: readonly { id: Outcome; label: string }[] = [
  { id: "ok", label: "Answered" },
  { id: "client_left", label: "Client left" },
  { id: "client_error", label: "Refused" },
  { id: "upstream_error", label: "Upstream failed" },
  { id: "gateway_error", label: "Not served" },
];

const totalOf = (minute: Minute) => OUTCOMES.reduce((sum, { id }) => sum + minute[id], 0);
const inWords = (minute: Minute) =>
  `${clockTime(minute.at)}: ${
    OUTCOMES.filter(({ id }) => minute[id] > 0)
      .map(({ id, label }) => `${label.toLowerCase()} ${count(minute[id])}`)
      .join(", ") || "no requests"
  }`;

export function LastHour() {
  const query = useActivity();
  return (
    <Section title="Requests of the last hour">
      <Loaded query={query} outline={<BlockSkeleton height={168} />}>
        {({ minutes }) => <Plot minutes={minutes} />}
      </Loaded>
    </Section>
  );
}

function Plot({ minutes }: { minutes: readonly Minute[] }) {
  const busiest = Math.max(0, ...minutes.map(totalOf));
  const totals = OUTCOMES.map(({ id, label }) => ({
    id,
    label,
    total: minutes.reduce((sum, minute) => sum + minute[id], 0),
  }));
  const all = totals.reduce((sum, { total }) => sum + total, 0);
  const summary = `${plural(all, "request")} in the last hour, by minute: ${totals
    .map(({ label, total }) => `${label.toLowerCase()} ${count(total)}`)
    .join(", ")}. The busiest minute had ${count(busiest)}.`;
  return (
    <figure className="minutes">
      <div className="minutes-plot">
        <span className="muted small" aria-hidden="true">
          {busiest === 0 ? "No request in this hour" : `${count(busiest)} in the busiest minute`}
        </span>
        <svg
          viewBox={`0 0 ${MINUTES * PITCH} ${HEIGHT}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={summary}
        >
          {Array.from({ length: MINUTES }, (_, place) => {
            const minute = minutes[minutes.length - MINUTES + place];
            return (
              // biome-ignore lint/suspicious/noArrayIndexKey: the slots are places on a fixed axis
              <Bar key={place} x={place * PITCH} minute={minute} busiest={Math.max(1, busiest)} />
            );
          })}
        </svg>
        <div className="row between muted small" aria-hidden="true">
          <span>an hour ago</span>
          <span>now</span>
        </div>
      </div>
      <ul className="chart-legend">
        {totals.map(({ id, label, total }) => (
          <li key={id} className={total === 0 && id !== "ok" ? "unused" : undefined}>
            <i className={`outcome ${id}`} />
            {label} <b>{count(total)}</b>
          </li>
        ))}
      </ul>
    </figure>
  );
}

function Bar({ x, minute, busiest }: { x: number; minute: Minute | undefined; busiest: number }) {
  let top = HEIGHT;
  return (
    <g>
      {minute && <title>{inWords(minute)}</title>}
      {/* The whole height answers to the pointer, however small the bar. */}
      <rect className="reach" x={x} y={0} width={PITCH} height={HEIGHT} />
      <rect className="outcome none" x={x} y={HEIGHT - 1} width={BAR} height={1} />
      {minute &&
        OUTCOMES.filter(({ id }) => minute[id] > 0).map(({ id }) => {
          const height = Math.max(HEIGHT_MIN, (minute[id] / busiest) * (HEIGHT - 4 * HEIGHT_MIN));
          top -= height;
          return <rect key={id} className={`outcome ${id}`} x={x} y={top} width={BAR} height={height} />;
        })}
    </g>
  );
}
