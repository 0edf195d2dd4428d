import { useMemo } from "react";
import { api } from "../../lib/api.ts";
import { session } from "../../lib/client.ts";
import {
  cachedShare,
  compact,
  count,
  dayOf,
  money,
  percent,
  plural,
  savedInWords,
  shortDay,
} from "../../lib/format.ts";
import { withChosen } from "../../lib/models.ts";
import { useQuery } from "../../lib/query.ts";
import { useSearch } from "../../lib/router.ts";
import { useStore } from "../../lib/store.ts";
import { TimeChart } from "../../ui/chart.tsx";
import { LinkButton, Segments, SmallSelect } from "../../ui/controls.tsx";
import { ExportButton } from "../../ui/export.tsx";
import { Figure, PageHead } from "../../ui/page.tsx";
import { seriesColor } from "../../ui/series.ts";
import { BlockSkeleton, FiguresSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import {
  FORMATS,
  GROUPINGS,
  type Grid,
  gridOf,
  keyInWords,
  lastDays,
  METRICS,
  type Metric,
  type Range,
  thisMonth,
  type UsageSeries,
  type UsageSums,
  type Which,
} from "./data.ts";
import { GroupTable } from "./tables.tsx";

const CSV_COLUMNS = [
  "created_at",
  "model",
  "backend",
  "prompt_tokens",
  "completion_tokens",
  "cached_tokens",
  "cache_write_tokens",
  "reasoning_tokens",
  "total_tokens",
  "cost",
  "ref_id",
  "api_key_id",
  "id",
];
const MONTH = "month";
const RANGES = [MONTH, "7", "30", "90"];
const RANGE_NAMES: Readonly<Record<string, string>> = { [MONTH]: "This month" };

const METRIC_NAMES: Record<Metric, string> = {
  cost: "cost",
  tokens: "tokens",
  requests: "requests",
  cache: "share of the prompts that came from a cache",
};

/** An address can be typed by hand; unknown values in it are ignored. */
const oneOf = <T,>(known: readonly T[], asked: unknown, otherwise: T): T =>
  known.find((value) => value === asked) ?? otherwise;
const dayIn = (text: string | null) =>
  text !== null && /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text)) ? text : null;

/** Filters live in the address, so that a view can be pasted to someone else. */
function useFilters() {
  const [search, setSearch] = useSearch();
  const days = oneOf(RANGES, search.get("days"), MONTH);
  const since = dayIn(search.get("since"));
  const until = dayIn(search.get("until"));
  const range: Range = useMemo(
    () => (since && until ? { since, until } : days === MONTH ? thisMonth() : lastDays(Number(days))),
    [since, until, days],
  );
  return {
    range,
    days: since && until ? null : days,
    grouping: oneOf(GROUPINGS, search.get("by"), "model"),
    metric: oneOf(METRICS, search.get("metric"), "cost"),
    project: search.get("project"),
    everyone: search.get("whose") === "all",
    user: search.get("user"),
    group: search.get("group"),
    model: search.get("model"),
    backend: search.get("backend"),
    ref: search.get("ref"),
    apiKey: search.get("key"),
    view: search.get("view") ?? "chart",
    set: setSearch,
  };
}

export function Page() {
  const filters = useFilters();
  const { range, grouping, project, everyone, user, group, model, backend, ref, apiKey } = filters;
  const isAdmin = useStore(session)?.user.is_admin;
  const asOperator = everyone && isAdmin === true;
  const which: Which = {
    ...range,
    ...(asOperator && { everyone: true }),
    ...(asOperator && user && { user_id: user }),
    ...(group && { group_id: group }),
    ...(project && { project }),
    ...(model && { model }),
    ...(backend && { backend }),
    ...(ref && { ref_id: ref }),
    ...(apiKey && { api_key_id: apiKey }),
  };
  const key = JSON.stringify(which);
  const query = useQuery(`usage series ${grouping} ${key}`, () =>
    api("usage.series", { ...which, by: grouping }),
  );
  return (
    <>
      <PageHead
        title="Usage"
        actions={
          <>
            <LinkButton href={requestsOf(which)} icon="requests">
              Requests
            </LinkButton>
            <ExportButton
              name={`usage-${range.since}-${range.until}.csv`}
              columns={CSV_COLUMNS}
              list={(page) => api("usage.records", { ...which, ...page })}
              disabled={isEmpty(query.data)}
            />
          </>
        }
      >
        Every metered request: tokens, cost and project. Days are in UTC.
      </PageHead>
      <Filters filters={filters} mayseeAll={Boolean(isAdmin)} which={which} />
      <Loaded query={query} outline={OUTLINE}>
        {(series) => <Report series={series} filters={filters} />}
      </Loaded>
    </>
  );
}

const DAY_MS = 86_400_000;

/** The requests behind the sums. */
function requestsOf({ since, until, everyone, user_id, group_id, ref_id, ...same }: Which): string {
  const { project, model, backend } = same;
  const wanted = {
    since: `${since}T00:00:00Z`,
    until: new Date(Date.parse(until) + DAY_MS).toISOString(),
    whose: group_id ?? (everyone ? "everyone" : "mine"),
    user: user_id,
    project,
    model,
    backend,
    ref: ref_id,
  };
  const given = Object.entries(wanted).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return `/requests?${new URLSearchParams(given)}`;
}

const isEmpty = (series: UsageSeries | undefined) => !series || series.totals.requests === 0;

const OUTLINE = (
  <>
    <FiguresSkeleton names={["Cost", "Requests", "Tokens in", "From the cache", "Tokens out"]} />
    <BlockSkeleton height={302} />
  </>
);

type FilterState = ReturnType<typeof useFilters>;

/** What can be chosen: what the range has, whatever is chosen now. */
function useChoices(
  { since, until, everyone }: Which,
  by: "model" | "backend" | "key" | "user" | "group",
): { all: string[]; inWords(id: string): string } {
  const which = { since, until, everyone };
  const key = `usage choices ${by} ${JSON.stringify(which)}`;
  const { data } = useQuery(key, () => api("usage.series", { ...which, by }));
  return useMemo(() => {
    const names = new Map(data?.groups.flatMap(({ id, name }) => (name ? [[id ?? name, name]] : [])));
    return { all: [...names.keys()].sort(), inWords: (id) => names.get(id) ?? id };
  }, [data]);
}

function Chosen({
  label,
  value,
  choices: { all, inWords },
  onChange,
}: {
  label: string;
  value: string | null;
  choices: ReturnType<typeof useChoices>;
  onChange(value: string): void;
}) {
  const listed = withChosen(all, value ?? "").map((id) => ({ value: id, label: keyInWords(inWords(id)) }));
  const choices = [{ value: "", label: `all ${label.toLowerCase()}s` }, ...listed];
  return <SmallSelect label={label} value={value ?? ""} onChange={onChange} choices={choices} />;
}

const TYPED_NAMES = { project: "Project", ref: "Reference" } as const;

function Filters({ filters, mayseeAll, which }: { filters: FilterState; mayseeAll: boolean; which: Which }) {
  const { range, days, grouping, metric, everyone, user, group, model, backend, apiKey, set } = filters;
  const models = useChoices(which, "model");
  const backends = useChoices(which, "backend");
  const keys = useChoices(which, "key");
  const users = useChoices(which, "user");
  const groups = useChoices(which, "group");
  return (
    <div className="filters">
      <Segments
        label="Range"
        value={days ?? "custom"}
        onChange={(value) =>
          set({
            days: value === "custom" ? null : value,
            since: value === "custom" ? range.since : null,
            until: value === "custom" ? range.until : null,
          })
        }
        choices={[
          ...RANGES.map((value) => ({ value, label: RANGE_NAMES[value] ?? `${value} days` })),
          { value: "custom", label: "Custom" },
        ]}
      />
      {days === null && (
        <span className="row">
          <input
            className="input small"
            type="date"
            aria-label="From"
            value={range.since}
            max={range.until}
            onChange={(event) => set({ since: event.target.value })}
          />
          <input
            className="input small"
            type="date"
            aria-label="To"
            value={range.until}
            max={dayOf(new Date())}
            onChange={(event) => set({ until: event.target.value })}
          />
        </span>
      )}
      <Segments
        label="Measure"
        value={metric}
        onChange={(value) => set({ metric: value })}
        choices={[
          { value: "cost", label: "Cost" },
          { value: "tokens", label: "Tokens" },
          { value: "requests", label: "Requests" },
          { value: "cache", label: "Cached" },
        ]}
      />
      <SmallSelect
        label="Group by"
        value={grouping}
        onChange={(value) => set({ by: value })}
        choices={[
          { value: "model", label: "by model" },
          { value: "backend", label: "by backend" },
          { value: "source", label: "by source" },
          { value: "ref", label: "by reference" },
          { value: "project", label: "by project" },
          { value: "key", label: "by key" },
          ...(everyone ? [{ value: "user" as const, label: "by user" }] : []),
          { value: "group", label: "by group" },
        ]}
      />
      <Chosen label="Model" value={model} choices={models} onChange={(value) => set({ model: value })} />
      <Chosen
        label="Backend"
        value={backend}
        choices={backends}
        onChange={(value) => set({ backend: value })}
      />
      <Chosen label="Key" value={apiKey} choices={keys} onChange={(value) => set({ key: value })} />
      {(group || groups.all.length > 0) && (
        <Chosen label="Group" value={group} choices={groups} onChange={(value) => set({ group: value })} />
      )}
      {everyone && mayseeAll && (
        <Chosen label="User" value={user} choices={users} onChange={(value) => set({ user: value })} />
      )}
      {mayseeAll && (
        <SmallSelect
          label="Whose"
          value={everyone ? "all" : "mine"}
          onChange={(value) => set({ whose: value === "all" ? "all" : null, user: null })}
          choices={[
            { value: "mine", label: "my requests" },
            { value: "all", label: "everyone's requests" },
          ]}
        />
      )}
      {(["project", "ref"] as const).map((name) => (
        <input
          key={name}
          className="input small"
          aria-label={TYPED_NAMES[name]}
          placeholder={TYPED_NAMES[name].toLowerCase()}
          size={12}
          maxLength={64}
          defaultValue={filters[name] ?? ""}
          onBlur={(event) => set({ [name]: event.target.value })}
          onKeyDown={(event) => event.key === "Enter" && event.currentTarget.blur()}
        />
      ))}
    </div>
  );
}

function Report({ series, filters }: { series: UsageSeries; filters: FilterState }) {
  const { range, grouping, metric, view, set } = filters;
  const grid = useMemo(() => gridOf(series, { range, grouping, metric }), [series, range, grouping, metric]);
  if (isEmpty(series))
    return (
      <Empty
        icon="usage"
        title="Nothing in this range"
        action={<LinkButton href="/playground">Open the playground</LinkButton>}
      >
        Requests of the chosen days appear here, stacked by {grouping}. Choose a longer range, or make a
        request.
      </Empty>
    );
  return (
    <>
      <Totals sums={series.totals} />
      <section className="stack">
        <div className="row between wrap">
          <Legend grid={grid} format={FORMATS[metric].alike} />
          <Segments
            label="Show as"
            value={view}
            onChange={(value) => set({ view: value === "chart" ? null : value })}
            choices={[
              { value: "chart", label: "Chart" },
              { value: "table", label: "Table" },
            ]}
          />
        </div>
        {view === "chart" ? (
          <TimeChart
            label={`${METRIC_NAMES[metric]} by day and ${grouping}`}
            isShare={metric === "cache"}
            times={grid.times}
            series={grid.series}
            formatTicks={FORMATS[metric].alike}
            formatParts={FORMATS[metric].parts}
            formatTime={shortDay}
            onZoom={(from, to) =>
              set({ days: null, since: dayOf(new Date(from * 1000)), until: dayOf(new Date(to * 1000)) })
            }
          />
        ) : (
          <GroupTable groups={series.groups} grouping={grouping} />
        )}
      </section>
    </>
  );
}

function Totals({ sums }: { sums: UsageSums }) {
  const { requests, prompt_tokens, completion_tokens, cost_usd, cache_saved_usd, unpriced } = sums;
  const priced = unpriced === null ? undefined : "all priced";
  return (
    <div className="figures">
      <Figure
        name="Cost"
        value={money(cost_usd)}
        note={unpriced ? `${plural(unpriced, "request")} unpriced` : priced}
      />
      <Figure name="Requests" value={count(requests)} />
      <Figure name="Tokens in" value={compact(prompt_tokens)} />
      <Figure
        name="From the cache"
        value={percent(cachedShare(sums) ?? 0)}
        note={`${compact(sums.cached_tokens)} tokens read, ${compact(sums.cache_write_tokens)} written, ${savedInWords(cache_saved_usd)}`}
      />
      <Figure name="Tokens out" value={compact(completion_tokens)} />
    </div>
  );
}

function Legend({ grid, format }: { grid: Grid; format(values: readonly number[]): string[] }) {
  const sums = format(grid.series.map(({ total }) => total));
  return (
    <ul className="chart-legend">
      {grid.series.map(({ label }, i) => (
        <li key={label}>
          <i style={{ background: seriesColor(i) }} />
          <span className="ellipsis">{label}</span>
          <b>{sums[i]}</b>
        </li>
      ))}
    </ul>
  );
}
