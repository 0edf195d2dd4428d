import { useEffect, useMemo, useState } from "react";
import { api } from "../../lib/api.ts";
import { session } from "../../lib/client.ts";
import { compact, count, countParts, money, percent, periodText, plural, seconds } from "../../lib/format.ts";
import { useGroups } from "../../lib/groups.ts";
import { withChosen } from "../../lib/models.ts";
import { useQuery } from "../../lib/query.ts";
import { useSearch } from "../../lib/router.ts";
import { useStore } from "../../lib/store.ts";
import { TimeChart } from "../../ui/chart.tsx";
import type { Choice } from "../../ui/combobox.tsx";
import { Button, LinkButton, Segments, SmallSelect } from "../../ui/controls.tsx";
import { ExportButton } from "../../ui/export.tsx";
import { Figure, PageHead, Section } from "../../ui/page.tsx";
import { BlockSkeleton, FiguresSkeleton, TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded, Note } from "../../ui/states.tsx";
import { BreakdownSection } from "./breakdown.tsx";
import {
  type Filters,
  firstPage,
  OUTCOME_NAMES,
  OUTCOMES,
  PICKS,
  type Picked,
  RANGES,
  type RangeName,
  type RequestFigures,
  type RequestRecord,
  type RequestStats,
  TYPED,
  useAskers,
  useFilters,
  useMorePages,
  useTail,
} from "./data.ts";
import { RequestSheet } from "./sheet.tsx";
import { REQUEST_COLUMNS, RequestTable } from "./table.tsx";
import { codeInWords } from "./words.tsx";

const STATS_EVERY_MS = 15_000;
const DAY_SECONDS = 86_400;
const CSV_COLUMNS = [
  "at",
  "id",
  "surface",
  "outcome",
  "status",
  "code",
  "message",
  "model",
  "model_asked",
  "backend",
  "reason",
  "attempts",
  "queue_ms",
  "first_token_ms",
  "duration_ms",
  "prompt_tokens",
  "completion_tokens",
  "tokens_per_second",
  "cost_usd",
  "user_email",
  "key_prefix",
  "project",
  "ref_id",
];
const COLORS = { ok: "--accent", left: "--series-6", refused: "--warn", failed: "--bad" } as const;

export function Page() {
  const isAdmin = Boolean(useStore(session)?.user.is_admin);
  const filters = useFilters(isAdmin);
  const { which, period, key, open, live, set } = filters;
  const stats = useQuery(`request stats ${key}`, () => api("requests.stats", { ...which, ...period() }), {
    everyMs: STATS_EVERY_MS,
  });
  return (
    <>
      <PageHead
        title="Requests"
        actions={
          <>
            <Button
              icon={live ? "stop" : "play"}
              aria-pressed={live}
              onClick={() => set({ live: live ? null : "1", since: null, until: null })}
            >
              {live ? "Stop live" : "Live"}
            </Button>
            <ExportButton
              name="requests.csv"
              columns={CSV_COLUMNS}
              list={(page) => api("requests.list", { ...which, ...period(), ...page })}
            />
          </>
        }
      >
        Every request, answered or not: what it asked for, where it went, how long it took.
      </PageHead>
      <FilterBar filters={filters} stats={stats.data} isAdmin={isAdmin} />
      <Loaded query={stats} outline={OUTLINE}>
        {(known) => <Report stats={known} filters={filters} />}
      </Loaded>
      {open && <RequestSheet id={open} onClose={() => set({ open: null })} />}
    </>
  );
}

const OUTLINE = (
  <>
    <FiguresSkeleton names={["Requests", "Error rate", "First token", "Duration", "Cost"]} />
    <BlockSkeleton height={302} />
    <TableSkeleton columns={REQUEST_COLUMNS} />
  </>
);

const PICK_NAMES: Readonly<Record<Picked, string>> = {
  model: "Model",
  backend: "Backend",
  surface: "Surface",
  code: "Error",
  key: "Key",
  user: "User",
};
const ANY: Readonly<Record<Picked, string>> = {
  model: "Any model",
  backend: "Any backend",
  surface: "Any surface",
  code: "Any error",
  key: "Any key",
  user: "Any user",
};

function choicesOf(
  stats: RequestStats | undefined,
  { user, key }: Record<"user" | "key", readonly Choice[]>,
  pick: Picked,
  chosen: string,
): Choice[] {
  const known: Choice[] = pick === "user" ? [...user] : pick === "key" ? [...key] : [];
  if (pick !== "user" && pick !== "key") {
    const groups = { model: "models", backend: "backends", surface: "surfaces", code: "codes" } as const;
    for (const { name } of stats?.[groups[pick]] ?? [])
      if (name) known.push({ value: name, label: pick === "code" ? codeInWords(name) : name });
  }
  const listed = withChosen(
    known.map(({ value }) => value),
    chosen,
  );
  const labels = new Map(known.map(({ value, label }) => [value, label]));
  return [
    { value: "", label: ANY[pick] },
    ...listed.map((value) => ({ value, label: labels.get(value) ?? value })),
  ];
}

/** Whose requests someone may see: their own, a group's as its admin, everyone's as administrator. */
function useWhose(isAdmin: boolean): Choice[] {
  const groups = useGroups();
  return useMemo(() => {
    const administered = (groups.data ?? []).filter(
      ({ my_role }) => isAdmin || my_role === "admin" || my_role === "owner",
    );
    return [
      ...(isAdmin ? [{ value: "everyone", label: "Everyone" }] : []),
      { value: "mine", label: "Mine" },
      ...administered.map(({ id, name }) => ({ value: id, label: `Group ${name}` })),
    ];
  }, [groups.data, isAdmin]);
}

const PEOPLE_OFFERED = 200;

function usePeople(isWanted: boolean): Choice[] {
  const query = useQuery(isWanted ? "users to choose" : null, () =>
    api("users.list", { limit: PEOPLE_OFFERED }),
  );
  return (query.data?.users ?? [])
    .map(({ id, email }) => ({ value: id, label: email }))
    .sort((one, other) => one.label.localeCompare(other.label));
}

/** The keys with the most requests, whichever is chosen now. */
function useKeys({ which: { everyone, group_id, user_id }, period, range, since, until }: Filters): Choice[] {
  const whose = { everyone, group_id, user_id };
  const key = JSON.stringify([whose, range ?? [since, until]]);
  const query = useAskers({ which: whose, period, key }, "key");
  return (query.data?.askers ?? []).flatMap(({ id, name }) => (id ? [{ value: id, label: name ?? id }] : []));
}

function FilterBar({
  filters,
  stats,
  isAdmin,
}: {
  filters: Filters;
  stats: RequestStats | undefined;
  isAdmin: boolean;
}) {
  const [search] = useSearch();
  const { range, since, until, whose, outcome, set } = filters;
  const who = useWhose(isAdmin);
  const asked = { user: usePeople(isAdmin && whose === "everyone"), key: useKeys(filters) };
  const isOffered = (pick: Picked) =>
    (pick !== "user" && pick !== "key") || search.get(pick) || asked[pick].length > 1;
  return (
    <div className="filters">
      <Segments<string>
        label="Range"
        value={range ?? "custom"}
        onChange={(value) => set({ range: value === "24h" ? null : value, since: null, until: null })}
        choices={[
          ...(range === null ? [{ value: "custom", label: periodText(since!, until!) }] : []),
          ...(Object.keys(RANGES) as RangeName[]).map((value) => ({ value, label: RANGES[value].label })),
        ]}
      />
      <SmallSelect
        label="Outcome"
        value={outcome ?? ""}
        onChange={(value) => set({ outcome: value })}
        choices={[
          { value: "", label: "Any outcome" },
          ...OUTCOMES.map((value) => ({ value, label: OUTCOME_NAMES[value] })),
        ]}
      />
      {PICKS.filter(isOffered).map((pick) => (
        <SmallSelect
          key={pick}
          label={PICK_NAMES[pick]}
          value={search.get(pick) ?? ""}
          onChange={(value) => set({ [pick]: value })}
          choices={choicesOf(stats, asked, pick, search.get(pick) ?? "")}
        />
      ))}
      {TYPED.map((name) => (
        <TypedFilter
          key={name}
          label={TYPED_NAMES[name]}
          value={search.get(name) ?? ""}
          onChange={(value) => set({ [name]: value })}
        />
      ))}
      <TypedFilter label="Request id" value="" onChange={(id) => set({ open: id })} pattern={REQUEST_ID} />
      {who.length > 1 && (
        <SmallSelect
          label="Whose"
          value={whose}
          onChange={(value) => set({ whose: value === who[0]!.value ? null : value, user: null })}
          choices={who}
        />
      )}
    </div>
  );
}

const TYPED_NAMES = { project: "Project", ref: "Reference" } as const;
const REQUEST_ID = "\\s*[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\s*";

/** In force when Enter is pressed, or when it is left. */
function TypedFilter({
  label,
  value,
  onChange,
  pattern,
}: {
  label: string;
  value: string;
  onChange(value: string | null): void;
  pattern?: string;
}) {
  const [words, setWords] = useState(value);
  useEffect(() => setWords(value), [value]);
  const apply = (field: HTMLInputElement) => {
    const wanted = words.trim();
    if (wanted !== value && field.reportValidity()) onChange(wanted || null);
  };
  return (
    <input
      className="input small"
      type="search"
      aria-label={label}
      placeholder={label}
      title={pattern ? "The id that x-request-id and error messages name" : undefined}
      pattern={pattern}
      maxLength={64}
      size={12}
      value={words}
      onChange={(event) => setWords(event.target.value)}
      onBlur={(event) => apply(event.currentTarget)}
      onKeyDown={(event) => {
        if (event.key !== "Enter") return;
        // Or the same key press would also press Close of what opens.
        event.preventDefault();
        apply(event.currentTarget);
      }}
    />
  );
}

function Report({ stats, filters }: { stats: RequestStats; filters: Filters }) {
  const [search] = useSearch();
  const { live, set, outcome } = filters;
  const names = [...PICKS, ...TYPED];
  const isFiltered = Boolean(outcome) || names.some((name) => search.get(name));
  if (stats.totals.requests === 0 && !live)
    return (
      <Empty
        icon="search"
        title="No requests in this period"
        action={
          isFiltered ? (
            <Button
              onClick={() => set({ outcome: null, ...Object.fromEntries(names.map((name) => [name, null])) })}
            >
              Clear the filters
            </Button>
          ) : (
            <LinkButton href="/playground">Open the playground</LinkButton>
          )
        }
      >
        {isFiltered
          ? "Nothing matches these filters. Widen the period, or clear them."
          : "Requests of the chosen period appear here, also those that were refused or failed."}
      </Empty>
    );
  return (
    <>
      <Totals stats={stats} />
      {live && <List filters={filters} />}
      <Histogram stats={stats} onZoom={(since, until) => set({ since, until, range: null, live: null })} />
      {!live && <List filters={filters} />}
      <BreakdownSection stats={stats} by={search.get("by")} filters={filters} />
    </>
  );
}

/** How much more or less than in the period before. */
function change(now: number, before: number): string {
  if (before === 0) return "none in the period before";
  const share = (now - before) / before;
  if (Math.abs(share) < 0.005) return "as in the period before";
  if (share >= 1) return `${Math.round(1 + share)}× the period before`;
  return `${percent(Math.abs(share))} ${share > 0 ? "more" : "fewer"} than the period before`;
}
const time = (ms: number | null) => (ms === null ? "none" : seconds(ms));
const unansweredOf = ({ requests, ok }: RequestFigures) => requests - ok;

function Totals({ stats: { totals, before } }: { stats: RequestStats }) {
  const share = (figures: RequestFigures) =>
    figures.requests === 0 ? 0 : unansweredOf(figures) / figures.requests;
  const { first_token, duration } = totals;
  return (
    <div className="figures">
      <Figure
        name="Requests"
        value={count(totals.requests)}
        note={change(totals.requests, before.requests)}
      />
      <Figure
        name="Error rate"
        value={percent(share(totals))}
        note={`${plural(unansweredOf(totals), "request")}; ${percent(share(before))} before`}
      />
      <Figure
        name="First token, p50"
        value={time(first_token.p50_ms)}
        note={`p95 ${time(first_token.p95_ms)}; before ${time(before.first_token.p50_ms)}`}
      />
      <Figure
        name="Duration, p50"
        value={time(duration.p50_ms)}
        note={`p95 ${time(duration.p95_ms)}; before ${time(before.duration.p50_ms)}`}
      />
      <Figure
        name="Cost"
        value={money(totals.cost_usd)}
        note={`${compact(totals.prompt_tokens)} tokens in, ${compact(totals.completion_tokens)} out`}
      />
    </div>
  );
}

const counts = (values: readonly number[]) => values.map(count);

function Histogram({ stats, onZoom }: { stats: RequestStats; onZoom(since: string, until: string): void }) {
  const { bins, bin_seconds } = stats;
  const times = useMemo(() => bins.map(({ at }) => Date.parse(at) / 1000), [bins]);
  const series = useMemo(
    () =>
      OUTCOMES.map((outcome) => ({
        label: OUTCOME_NAMES[outcome],
        values: bins.map((bin) => bin[outcome]),
        color: COLORS[outcome],
      })),
    [bins],
  );
  const isDaily = bin_seconds >= DAY_SECONDS;
  const isLong = bins.length * bin_seconds > 2 * DAY_SECONDS;
  const formatTime = useMemo(
    () => timeFormat(isDaily ? "day" : isLong ? "both" : "clock"),
    [isDaily, isLong],
  );
  return (
    <section className="stack">
      <ul className="chart-legend">
        {series.map(({ label, values, color }) => {
          const sum = values.reduce((total, value) => total + value, 0);
          return (
            <li key={label} className={sum === 0 ? "unused" : undefined}>
              <i style={{ background: `var(${color})` }} />
              {label} <b>{count(sum)}</b>
            </li>
          );
        })}
      </ul>
      <TimeChart
        label={`Requests by outcome, every ${seconds(bin_seconds * 1000)}`}
        times={times}
        series={series}
        formatTicks={counts}
        formatParts={countParts}
        formatTime={formatTime}
        onZoom={(from, to) => onZoom(new Date(from * 1000).toISOString(), new Date(to * 1000).toISOString())}
      />
    </section>
  );
}

const FORMATS = {
  clock: { hour: "2-digit", minute: "2-digit" },
  both: { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" },
  day: { month: "short", day: "numeric", timeZone: "UTC" },
} as const;
const timeFormat = (kind: keyof typeof FORMATS) => {
  const format = new Intl.DateTimeFormat("en-GB", FORMATS[kind]);
  return (at: number) => format.format(new Date(at * 1000));
};

/** Names of keys and people are left out of what is told live; most are in the list already. */
function withNames(told: readonly RequestRecord[], listed: readonly RequestRecord[]): RequestRecord[] {
  const byAsker = new Map(listed.map((record) => [record.key_id ?? record.user_id, record]));
  return told.map((record) => {
    const known = byAsker.get(record.key_id ?? record.user_id) ?? record;
    return { ...record, key_name: known.key_name, user_email: known.user_email };
  });
}

function List({ filters }: { filters: Filters }) {
  const { key, which, live, set } = filters;
  const page = useQuery(`requests ${key}`, () => firstPage(filters));
  const more = useMorePages(filters, page.data?.next_cursor ?? null);
  const tail = useTail(which, live, page.reload);
  return (
    <Section title={live ? "Live" : "Latest"}>
      {live && (
        <Note>
          Requests appear here as they end.
          {tail.skipped > 0 && ` ${count(tail.skipped)} more came faster than they can be shown.`}
        </Note>
      )}
      <Loaded query={page} outline={<TableSkeleton columns={REQUEST_COLUMNS} />}>
        {({ records, next_cursor }) => {
          const fresh = new Set(tail.records.map(({ id }) => id));
          const listed = [...records, ...more.records];
          const older = listed.filter(({ id }) => !fresh.has(id));
          const cursor = more.cursor === undefined ? next_cursor : more.cursor;
          return (
            <RequestTable
              records={[...withNames(tail.records, listed), ...older]}
              onOpen={(id) => set({ open: id })}
              onMore={cursor ? () => more.load(cursor) : undefined}
            />
          );
        }}
      </Loaded>
    </Section>
  );
}
