import { useMemo } from "react";
import { session } from "../../lib/client.ts";
import { downloadText, toCsv } from "../../lib/download.ts";
import {
  compact,
  count,
  countParts,
  dayOf,
  money,
  moneyFormat,
  moneyParts,
  type PartsInWords,
} from "../../lib/format.ts";
import { withChosen } from "../../lib/models.ts";
import { useQuery } from "../../lib/query.ts";
import { useSearch } from "../../lib/router.ts";
import { useStore } from "../../lib/store.ts";
import { StackedChart, seriesColor } from "../../ui/chart.tsx";
import { Button, LinkButton, Segments, SmallSelect } from "../../ui/controls.tsx";
import { Figure, PageHead } from "../../ui/page.tsx";
import { BlockSkeleton, FiguresSkeleton, TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded, Note } from "../../ui/states.tsx";
import {
  allRows,
  GROUPINGS,
  type Grid,
  gridOf,
  keyInWords,
  lastDays,
  METRICS,
  type Metric,
  ownRows,
  type Range,
  thisMonth,
  type UsageRow,
} from "./data.ts";
import { RequestSheet } from "./request-sheet.tsx";
import { GroupTable, REQUEST_COLUMNS, RequestTable } from "./tables.tsx";

const CSV_COLUMNS = [
  "created_at",
  "model",
  "backend",
  "prompt_tokens",
  "completion_tokens",
  "total_tokens",
  "cost",
  "ref_id",
  "api_key_id",
  "id",
];
const MONTH = "month";
const RANGES = [MONTH, "7", "30", "90"];
const RANGE_NAMES: Readonly<Record<string, string>> = { [MONTH]: "This month" };
const shortDay = (seconds: number) =>
  new Date(seconds * 1000).toLocaleDateString("en-US", { month: "short", day: "numeric", timeZone: "UTC" });

interface MetricFormat {
  /** Values that stand side by side: the marks of the axis, the sums of the legend. */
  alike(values: readonly number[]): string[];
  /** Values that add up to the last one. */
  parts(values: readonly number[]): PartsInWords;
}
const FORMATS: Record<Metric, MetricFormat> = {
  cost: { alike: (values) => values.map(moneyFormat(values)), parts: moneyParts },
  tokens: { alike: (values) => values.map(compact), parts: countParts },
  requests: { alike: (values) => values.map(count), parts: countParts },
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
    model: search.get("model"),
    apiKey: search.get("key"),
    view: search.get("view") ?? "chart",
    open: search.get("open"),
    set: setSearch,
  };
}

export function Page() {
  const filters = useFilters();
  const { range, project, everyone, model, apiKey } = filters;
  const isAdmin = useStore(session)?.user.is_admin;
  const asOperator = everyone && isAdmin === true;
  const key = `usage rows ${asOperator} ${range.since} ${range.until} ${project}`;
  const query = useQuery(key, () => (asOperator ? allRows(range) : ownRows(range, project)));
  const rows = useMemo(
    () =>
      query.data?.rows.filter(
        (row) => (!model || row.model === model) && (!apiKey || row.api_key_id === apiKey),
      ),
    [query.data, model, apiKey],
  );
  return (
    <>
      <PageHead title="Usage" actions={<Export rows={rows} range={range} />}>
        Every metered request: tokens, cost and project. Days are in UTC.
      </PageHead>
      <Filters filters={filters} mayseeAll={Boolean(isAdmin)} rows={query.data?.rows ?? []} />
      <Loaded query={query} outline={OUTLINE}>
        {({ truncated }) => <Report rows={rows ?? []} truncated={truncated} filters={filters} />}
      </Loaded>
    </>
  );
}

const OUTLINE = (
  <>
    <FiguresSkeleton names={["Cost", "Requests", "Tokens in", "Tokens out"]} />
    <BlockSkeleton height={302} />
    <TableSkeleton columns={REQUEST_COLUMNS} />
  </>
);

type FilterState = ReturnType<typeof useFilters>;

const distinct = (rows: readonly UsageRow[], field: "model" | "api_key_id") =>
  [...new Set(rows.map((row) => row[field]))].sort();

function Filters({
  filters,
  mayseeAll,
  rows,
}: {
  filters: FilterState;
  mayseeAll: boolean;
  rows: readonly UsageRow[];
}) {
  const { range, days, grouping, metric, project, everyone, model, apiKey, set } = filters;
  const models = useMemo(() => distinct(rows, "model"), [rows]);
  const keys = useMemo(() => distinct(rows, "api_key_id"), [rows]);
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
        ]}
      />
      <SmallSelect
        label="Group by"
        value={grouping}
        onChange={(value) => set({ by: value })}
        choices={[
          { value: "model", label: "by model" },
          { value: "backend", label: "by backend" },
          { value: "ref", label: "by reference" },
          ...(everyone ? [] : [{ value: "project" as const, label: "by project" }]),
          { value: "key", label: "by key" },
        ]}
      />
      <SmallSelect
        label="Model"
        value={model ?? ""}
        onChange={(value) => set({ model: value })}
        choices={[
          { value: "", label: "all models" },
          ...withChosen(models, model ?? "").map((id) => ({ value: id, label: id })),
        ]}
      />
      <SmallSelect
        label="Key"
        value={apiKey ?? ""}
        onChange={(value) => set({ key: value })}
        choices={[
          { value: "", label: "all keys" },
          ...withChosen(keys, apiKey ?? "").map((id) => ({ value: id, label: keyInWords(id) })),
        ]}
      />
      {mayseeAll && (
        <SmallSelect
          label="Whose"
          value={everyone ? "all" : "mine"}
          onChange={(value) => set({ whose: value === "all" ? "all" : null, project: null })}
          choices={[
            { value: "mine", label: "my requests" },
            { value: "all", label: "everyone's requests" },
          ]}
        />
      )}
      {!everyone && (
        <input
          className="input small"
          aria-label="Project"
          placeholder="project"
          size={12}
          defaultValue={project ?? ""}
          onBlur={(event) => set({ project: event.target.value })}
          onKeyDown={(event) => event.key === "Enter" && event.currentTarget.blur()}
        />
      )}
    </div>
  );
}

function Report({
  rows,
  truncated,
  filters,
}: {
  rows: readonly UsageRow[];
  truncated: boolean;
  filters: FilterState;
}) {
  const { range, grouping, metric, view, set, open } = filters;
  const grid = useMemo(() => gridOf(rows, { range, grouping, metric }), [rows, range, grouping, metric]);
  const opened = rows.find(({ id }) => id === open);
  if (rows.length === 0)
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
      <Totals rows={rows} />
      {truncated && (
        <Note tone="warn">
          Only the newest {count(rows.length)} requests of this range are shown. Choose a shorter one.
        </Note>
      )}
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
          <StackedChart
            label={`${metric} by day and ${grouping}`}
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
          <GroupTable rows={rows} grouping={grouping} />
        )}
      </section>
      <RequestTable rows={rows} onOpen={(id) => set({ open: id })} />
      {opened && <RequestSheet row={opened} onClose={() => set({ open: null })} />}
    </>
  );
}

function Totals({ rows }: { rows: readonly UsageRow[] }) {
  const unpriced = rows.filter(({ cost }) => cost === null).length;
  const sum = (pick: (row: UsageRow) => number) => rows.reduce((total, row) => total + pick(row), 0);
  return (
    <div className="figures">
      <Figure
        name="Cost"
        value={money(sum(({ cost }) => cost ?? 0))}
        note={unpriced > 0 ? `${count(unpriced)} without a price` : "all priced"}
      />
      <Figure name="Requests" value={count(rows.length)} />
      <Figure name="Tokens in" value={compact(sum(({ prompt_tokens }) => prompt_tokens))} />
      <Figure name="Tokens out" value={compact(sum(({ completion_tokens }) => completion_tokens))} />
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

function Export({ rows, range }: { rows: readonly UsageRow[] | undefined; range: Range }) {
  return (
    <Button
      icon="download"
      disabled={!rows?.length}
      onClick={() =>
        downloadText(
          `usage-${range.since}-${range.until}.csv`,
          toCsv(CSV_COLUMNS, (rows ?? []) as unknown as Record<string, unknown>[]),
        )
      }
    >
      CSV
    </Button>
  );
}
