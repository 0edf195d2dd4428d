import { type Activity, useActivity } from "../../lib/activity.ts";
import { count, plural, seconds } from "../../lib/format.ts";
import { Section } from "../../ui/page.tsx";
import { Skeleton } from "../../ui/skeleton.tsx";
import { Loaded } from "../../ui/states.tsx";

const MODELS_SHOWN = 6;
const WIDTH = 100;
const HEIGHT = 8;

const time = (ms: number | null) => (ms === null ? "unknown" : seconds(ms));

/** How long people wait until an answer begins. */
export function FirstTokens() {
  const query = useActivity();
  return (
    <Section title="Time to first token, last hour">
      <Loaded query={query} outline={<Skeleton lines={5} />}>
        {({ first_token }) =>
          first_token.count === 0 ? (
            <p className="muted">
              No streamed answer in the last hour. Half of the answers begin within p50, nearly all within
              p95.
            </p>
          ) : (
            <FirstTokenTable figures={first_token} />
          )
        }
      </Loaded>
    </Section>
  );
}

function FirstTokenTable({ figures }: { figures: Activity["first_token"] }) {
  const slowestMs = Math.max(1, ...figures.models.map(({ p95_ms }) => p95_ms ?? 0));
  const more = figures.models.length - MODELS_SHOWN;
  return (
    <table className="first-tokens">
      <thead>
        <tr>
          <th>Model</th>
          <th className="num">p50</th>
          <th className="num">p95</th>
          <th>
            <span className="visually-hidden">From p50 to p95</span>
          </th>
          <th className="num">Answers</th>
        </tr>
      </thead>
      <tbody>
        <tr className="all">
          <th scope="row">All</th>
          <td className="num">{time(figures.p50_ms)}</td>
          <td className="num">{time(figures.p95_ms)}</td>
          <td />
          <td className="num">{count(figures.count)}</td>
        </tr>
        {figures.models.slice(0, MODELS_SHOWN).map(({ model, p50_ms, p95_ms, count: answers }) => (
          <tr key={model}>
            <th scope="row" className="mono" title={model}>
              {model}
            </th>
            <td className="num">{time(p50_ms)}</td>
            <td className="num">{time(p95_ms)}</td>
            <td className="range">
              <Range fromMs={p50_ms ?? 0} toMs={p95_ms ?? 0} slowestMs={slowestMs} />
            </td>
            <td className="num">{count(answers)}</td>
          </tr>
        ))}
      </tbody>
      {more > 0 && (
        <tfoot>
          <tr>
            <td colSpan={5} className="muted small">
              {plural(more, "more model")} with fewer answers
            </td>
          </tr>
        </tfoot>
      )}
    </table>
  );
}

/** Where the figures beside it lie on one scale for all models. */
function Range({ fromMs, toMs, slowestMs }: { fromMs: number; toMs: number; slowestMs: number }) {
  const from = (fromMs / slowestMs) * WIDTH;
  const to = (toMs / slowestMs) * WIDTH;
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <rect className="rail" x={0} y={HEIGHT / 2 - 0.5} width={WIDTH} height={1} />
      <rect className="span" x={from} y={1} width={Math.max(1.5, to - from)} height={HEIGHT - 2} />
    </svg>
  );
}
