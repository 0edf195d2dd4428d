import type { UsageQueryRecord } from "@model-gateway/client";
import { api } from "../../lib/api.ts";

import { dayOf } from "../../lib/format.ts";
import { SERIES_MAX } from "../../ui/chart.tsx";

export interface UsageRow {
  id: string;
  created_at: string;
  model: string;
  backend: string;
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cost: number | null;
  ref_id: string | null;
  api_key_id: string;
  /** The rest is told of one's own requests only. */
  project?: string | null;
  points?: number | null;
  account_type?: "user" | "group" | null;
  estimated?: boolean;
}

export const GROUPINGS = ["model", "backend", "ref", "project", "key"] as const;
export type Grouping = (typeof GROUPINGS)[number];
export const METRICS = ["cost", "tokens", "requests"] as const;
export type Metric = (typeof METRICS)[number];

export interface Range {
  /** Days, both included, UTC. */
  since: string;
  until: string;
}

const DAY_MS = 86_400_000;
const PAGE = 200;
const ADMIN_PAGE = 500;
/** More rows than this are not fetched into a browser; the page says so. */
export const ROWS_MAX = 10_000;

export const lastDays = (days: number, now = Date.now()): Range => ({
  since: dayOf(new Date(now - (days - 1) * DAY_MS)),
  until: dayOf(new Date(now)),
});

/** The calendar month, which is what the quota and the overview count by. */
export const thisMonth = (now = Date.now()): Range => ({
  since: `${dayOf(new Date(now)).slice(0, 8)}01`,
  until: dayOf(new Date(now)),
});

export interface UsageRows {
  rows: UsageRow[];
  /** The range holds more rows than were fetched. */
  truncated: boolean;
}

/** The caller's own rows of the range, newest first. */
export async function ownRows({ since, until }: Range, project: string | null): Promise<UsageRows> {
  const rows: UsageRow[] = [];
  const end = `${until}T23:59:59.999Z`;
  for (let offset = 0; offset < ROWS_MAX; offset += PAGE) {
    const page = await api("usage.list", { limit: PAGE, offset, ...(project && { project }) });
    rows.push(...page.records.filter(({ created_at }) => created_at >= since && created_at <= end));
    const oldest = page.records.at(-1);
    if (!oldest || oldest.created_at < since || offset + PAGE >= page.total)
      return { rows, truncated: false };
  }
  return { rows, truncated: true };
}

/** Everyone's rows, for administrators. */
export async function allRows({ since, until }: Range): Promise<UsageRows> {
  const rows: UsageQueryRecord[] = [];
  for (let offset = 0; offset < ROWS_MAX; offset += ADMIN_PAGE) {
    const page = await api("usage.query", {
      since,
      until,
      include_records: true,
      limit: ADMIN_PAGE,
      offset,
    });
    rows.push(...(page.records ?? []));
    if (rows.length >= (page.records_total ?? 0)) return { rows, truncated: false };
  }
  return { rows, truncated: true };
}

export function daysOf({ since, until }: Range): string[] {
  const days: string[] = [];
  for (let at = Date.parse(since); at <= Date.parse(until) && days.length < 400; at += DAY_MS)
    days.push(dayOf(new Date(at)));
  return days;
}

/** What was done without a key counts for the account. */
export const keyInWords = (id: string): string => (id.startsWith("jwt-") ? "signed in" : id);

export const groupOf = (row: UsageRow, grouping: Grouping): string => {
  if (grouping === "ref") return row.ref_id ?? "no reference";
  if (grouping === "project") return row.project ?? "signed in, no project";
  if (grouping === "key") return keyInWords(row.api_key_id);
  return row[grouping];
};

export const measureOf = (row: UsageRow, metric: Metric): number =>
  metric === "cost" ? (row.cost ?? 0) : metric === "tokens" ? row.total_tokens : 1;

export interface Grid {
  times: number[];
  series: { label: string; values: number[]; total: number }[];
}

/** Sums by day and group, the largest groups first; what does not fit becomes "others". */
export function gridOf(
  rows: readonly UsageRow[],
  { range, grouping, metric }: { range: Range; grouping: Grouping; metric: Metric },
): Grid {
  const days = daysOf(range);
  const place = new Map(days.map((day, i) => [day, i]));
  const groups = new Map<string, number[]>();
  for (const row of rows) {
    const at = place.get(row.created_at.slice(0, 10));
    if (at === undefined) continue;
    const label = groupOf(row, grouping);
    const values = groups.get(label) ?? days.map(() => 0);
    values[at]! += measureOf(row, metric);
    groups.set(label, values);
  }
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  const all = [...groups]
    .map(([label, values]) => ({ label, values, total: sum(values) }))
    .sort((a, b) => b.total - a.total);
  if (all.length > SERIES_MAX) {
    const rest = all.splice(SERIES_MAX - 1);
    const values = days.map((_, i) => sum(rest.map((group) => group.values[i]!)));
    all.push({ label: `${rest.length} others`, values, total: sum(values) });
  }
  return { times: days.map((day) => Date.parse(day) / 1000), series: all };
}
