import type { Params, Result } from "@model-gateway/client";
import {
  compact,
  count,
  countParts,
  dayOf,
  moneyParts,
  type PartsInWords,
  percent,
  sumsFormat,
} from "../../lib/format.ts";
import { SERIES_MAX } from "../../ui/series.ts";

export type UsageSeries = Result<"usage.series">;
export type UsageGroup = UsageSeries["groups"][number];
export type UsageSums = UsageSeries["totals"];
/** Which rows are counted and listed. */
export type Which = Omit<Params<"usage.records">, "limit" | "cursor">;

export const GROUPINGS = ["model", "backend", "source", "ref", "project", "key", "user", "group"] as const;
export type Grouping = (typeof GROUPINGS)[number];
export const METRICS = ["cost", "tokens", "requests", "cache"] as const;
export type Metric = (typeof METRICS)[number];

interface MetricFormat {
  /** Values that stand side by side: the marks of the axis, the sums of the legend. */
  alike(values: readonly number[]): string[];
  /** Values that add up to the last one. */
  parts(values: readonly number[]): PartsInWords;
}
export const FORMATS: Record<Metric, MetricFormat> = {
  cost: { alike: (values) => values.map(sumsFormat(values)), parts: moneyParts },
  tokens: { alike: (values) => values.map(compact), parts: countParts },
  requests: { alike: (values) => values.map(count), parts: countParts },
  cache: {
    alike: (values) => values.map(percent),
    parts: (values) => ({ parts: values.map(percent), total: "from the cache" }),
  },
};

export interface Range {
  /** Days, both included, UTC. */
  since: string;
  until: string;
}

const DAY_MS = 86_400_000;

export const lastDays = (days: number, now = Date.now()): Range => ({
  since: dayOf(new Date(now - (days - 1) * DAY_MS)),
  until: dayOf(new Date(now)),
});

/** The calendar month, which is what the quota and the overview count by. */
export const thisMonth = (now = Date.now()): Range => ({
  since: `${dayOf(new Date(now)).slice(0, 8)}01`,
  until: dayOf(new Date(now)),
});

export function daysOf({ since, until }: Range): string[] {
  const days: string[] = [];
  for (let at = Date.parse(since); at <= Date.parse(until) && days.length < 400; at += DAY_MS)
    days.push(dayOf(new Date(at)));
  return days;
}

/** What was done without a key counts for the account. */
export const keyInWords = (id: string): string => (id.startsWith("jwt-") ? "signed in" : id);

const NAMELESS: Partial<Record<Grouping, string>> = {
  backend: "not known",
  ref: "no reference",
  project: "signed in, no project",
  group: "no group",
};

export function groupInWords(name: string | null, grouping: Grouping): string {
  if (!name) return NAMELESS[grouping] ?? "none";
  return grouping === "key" ? keyInWords(name) : name;
}

const MEASURES: Record<Metric, (sums: UsageSums) => number> = {
  cost: ({ cost_usd }) => cost_usd,
  tokens: ({ prompt_tokens, completion_tokens }) => prompt_tokens + completion_tokens,
  requests: ({ requests }) => requests,
  // Of this the plot shows what came from a cache.
  cache: ({ prompt_tokens }) => prompt_tokens,
};

export interface Grid {
  times: number[];
  series: { label: string; values: (number | null)[]; total: number }[];
}

interface Bars {
  label: string;
  values: number[];
  cached: number[];
}
const sumOf = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
const shareOf = (part: number, whole: number) => (whole > 0 ? part / whole : null);

/** What a chart shows, the largest groups first; what does not fit becomes "others". */
export function gridOf(
  { groups, others }: UsageSeries,
  { range, grouping, metric }: { range: Range; grouping: Grouping; metric: Metric },
): Grid {
  const days = daysOf(range);
  const place = new Map(days.map((day, i) => [day, i]));
  const valuesOf = (each: { days: UsageGroup["days"] }, measure: (sums: UsageSums) => number) => {
    const values = days.map(() => 0);
    for (const day of each.days) {
      const at = place.get(day.day);
      if (at !== undefined) values[at]! += measure(day);
    }
    return values;
  };
  const barsOf = (label: string, each: { days: UsageGroup["days"] }): Bars => ({
    label,
    values: valuesOf(each, MEASURES[metric]),
    cached: valuesOf(each, ({ cached_tokens }) => cached_tokens),
  });
  const all = groups
    .map((group) => barsOf(groupInWords(group.name, grouping), group))
    .sort((a, b) => sumOf(b.values) - sumOf(a.values));
  const unnamed = others ? [barsOf("", others)] : [];
  if (all.length + unnamed.length > SERIES_MAX) {
    const rest = all.splice(SERIES_MAX - 1);
    const parts = [...rest, ...unnamed];
    const together = (of: (bars: Bars) => number[]) =>
      days.map((_, i) => sumOf(parts.map((bars) => of(bars)[i]!)));
    all.push({
      label: `${rest.length + (others?.groups ?? 0)} others`,
      values: together(({ values }) => values),
      cached: together(({ cached }) => cached),
    });
  }
  const series = all.map(({ label, values, cached }) =>
    metric === "cache"
      ? {
          label,
          values: values.map((whole, i) => shareOf(cached[i]!, whole)),
          total: shareOf(sumOf(cached), sumOf(values)) ?? 0,
        }
      : { label, values, total: sumOf(values) },
  );
  return { times: days.map((day) => Date.parse(day) / 1000), series };
}
