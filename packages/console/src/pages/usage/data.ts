import type { Params, Result } from "@model-gateway/client";
import { api } from "../../lib/api.ts";
import { dayOf } from "../../lib/format.ts";
import { SERIES_MAX } from "../../ui/chart.tsx";

export type UsageRow = Result<"usage.records">["records"][number];
export type UsageSeries = Result<"usage.series">;
export type UsageGroup = UsageSeries["groups"][number];
export type UsageSums = UsageSeries["totals"];
/** Which rows are counted and listed. */
export type Which = Omit<Params<"usage.records">, "limit" | "cursor">;

export const GROUPINGS = ["model", "source", "ref", "project", "key"] as const;
export type Grouping = (typeof GROUPINGS)[number];
export const METRICS = ["cost", "tokens", "requests"] as const;
export type Metric = (typeof METRICS)[number];

export interface Range {
  /** Days, both included, UTC. */
  since: string;
  until: string;
}

const DAY_MS = 86_400_000;
const EXPORT_PAGE_ROWS = 500;
export const EXPORT_ROWS_MAX = 10_000;

export const lastDays = (days: number, now = Date.now()): Range => ({
  since: dayOf(new Date(now - (days - 1) * DAY_MS)),
  until: dayOf(new Date(now)),
});

/** The calendar month, which is what the quota and the overview count by. */
export const thisMonth = (now = Date.now()): Range => ({
  since: `${dayOf(new Date(now)).slice(0, 8)}01`,
  until: dayOf(new Date(now)),
});

/** The rows themselves, up to what a spreadsheet is for. */
export async function exportRows(which: Which): Promise<UsageRow[]> {
  const rows: UsageRow[] = [];
  let cursor: string | undefined;
  do {
    const page = await api("usage.records", { ...which, cursor, limit: EXPORT_PAGE_ROWS });
    rows.push(...page.records);
    cursor = page.next_cursor ?? undefined;
  } while (cursor && rows.length < EXPORT_ROWS_MAX);
  return rows.slice(0, EXPORT_ROWS_MAX);
}

export function daysOf({ since, until }: Range): string[] {
  const days: string[] = [];
  for (let at = Date.parse(since); at <= Date.parse(until) && days.length < 400; at += DAY_MS)
    days.push(dayOf(new Date(at)));
  return days;
}

/** What was done without a key counts for the account. */
export const keyInWords = (id: string): string => (id.startsWith("jwt-") ? "signed in" : id);

export function groupInWords(name: string | null, grouping: Grouping): string {
  if (name === null) return grouping === "ref" ? "no reference" : "signed in, no project";
  return grouping === "key" ? keyInWords(name) : name;
}

const measureOf = (sums: UsageSums, metric: Metric): number =>
  metric === "cost"
    ? sums.cost_usd
    : metric === "tokens"
      ? sums.prompt_tokens + sums.completion_tokens
      : sums.requests;

export interface Grid {
  times: number[];
  series: { label: string; values: number[]; total: number }[];
}

/** What a chart stacks, the largest groups first; what does not fit becomes "others". */
export function gridOf(
  { groups, others }: UsageSeries,
  { range, grouping, metric }: { range: Range; grouping: Grouping; metric: Metric },
): Grid {
  const days = daysOf(range);
  const place = new Map(days.map((day, i) => [day, i]));
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  const valuesOf = (each: { days: UsageGroup["days"] }) => {
    const values = days.map(() => 0);
    for (const day of each.days) {
      const at = place.get(day.day);
      if (at !== undefined) values[at]! += measureOf(day, metric);
    }
    return values;
  };
  const all = groups
    .map((group) => {
      const values = valuesOf(group);
      return { label: groupInWords(group.name, grouping), values, total: sum(values) };
    })
    .sort((a, b) => b.total - a.total);
  const unnamed = others ? [{ count: others.groups, values: valuesOf(others) }] : [];
  if (all.length + unnamed.length > SERIES_MAX) {
    const rest = all.splice(SERIES_MAX - 1);
    const parts = [...rest, ...unnamed];
    const values = days.map((_, i) => sum(parts.map((group) => group.values[i]!)));
    const count = rest.length + (others?.groups ?? 0);
    all.push({ label: `${count} others`, values, total: sum(values) });
  }
  return { times: days.map((day) => Date.parse(day) / 1000), series: all };
}
