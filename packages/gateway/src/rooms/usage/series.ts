import { isoTime } from "../../kernel/clock.ts";
import type { Database, SqlValue } from "../../storage/contract.ts";
import { DAY_MS, utcDay } from "./calendar.ts";
import { NANO_PER_USD } from "./rows.ts";

export const SERIES_BY = ["model", "source", "ref", "project", "key"] as const;
export type SeriesBy = (typeof SERIES_BY)[number];

/** Groups that are told apart; the rest are summed up together. */
const GROUPS_MAX = 50;
/** Sums by day and group that are read; the smallest are left out beyond that. */
const SUMS_MAX = 50_000;

/** Which rows; null members do not matter. */
export interface SeriesFilter {
  /** Null: everyone's. */
  userId: string | null;
  sinceMs: number;
  /** Exclusive. */
  untilMs: number;
  project: string | null;
  model: string | null;
  apiKeyId: string | null;
}

const COLUMNS: Readonly<Record<SeriesBy, string>> = {
  model: "model",
  source: "backend",
  ref: "ref_id",
  project: "project",
  key: "api_key_id",
};

interface DaySums {
  day: string;
  name: string | null;
  requests: number;
  prompt_tokens: number;
  completion_tokens: number;
  cost_nano_usd: number;
  /** Null where sums do not say. */
  unpriced: number | null;
}

class Conditions {
  readonly params: SqlValue[] = [];
  readonly #texts: string[] = [];
  add(text: (placeholder: string) => string, value: SqlValue): void {
    if (value !== null) this.#texts.push(text(`$${this.params.push(value)}`));
  }
  get where(): string {
    return `WHERE ${this.#texts.join(" AND ")}`;
  }
}

/** Sums by day and group, as a chart shows them. */
export class UsageSeries {
  constructor(readonly db: Database) {}

  async read(filter: SeriesFilter, by: SeriesBy) {
    return seriesOf(await this.#rows(filter, by));
  }

  #rows(filter: SeriesFilter, by: SeriesBy): Promise<DaySums[]> {
    const isByKey = by === "key" || by === "project";
    if (!isByKey && filter.userId === null && filter.apiKeyId === null && filter.project === null)
      return this.#rollups(filter, by);
    const isWholeDays = filter.sinceMs % DAY_MS === 0 && filter.untilMs % DAY_MS === 0;
    return isByKey && filter.model === null && isWholeDays
      ? this.#keyDays(filter, by)
      : this.#raw(filter, by);
  }

  #keyDays({ userId, sinceMs, untilMs, project, apiKeyId }: SeriesFilter, by: SeriesBy): Promise<DaySums[]> {
    const conditions = new Conditions();
    conditions.add((value) => `user_id = ${value}`, userId);
    conditions.add((value) => `day >= ${value}`, utcDay(sinceMs));
    conditions.add((value) => `day < ${value}`, utcDay(untilMs));
    conditions.add((value) => `project = ${value}`, project);
    conditions.add((value) => `api_key_id = ${value}`, apiKeyId);
    const name = by === "key" ? "api_key_id" : "NULLIF(project, '')";
    const source = `SELECT day, ${name} AS name, requests, prompt_tokens, completion_tokens, cost_nano_usd, unpriced
      FROM usage_key_days ${conditions.where}`;
    return this.#grouped(source, "CAST(SUM(unpriced) AS BIGINT)", conditions.params);
  }

  /** Everyone's, from the sums of whole days. */
  #rollups({ sinceMs, untilMs, model }: SeriesFilter, by: SeriesBy): Promise<DaySums[]> {
    const conditions = new Conditions();
    conditions.add((value) => `day >= ${value}`, utcDay(sinceMs));
    conditions.add((value) => `day < ${value}`, utcDay(untilMs + DAY_MS - 1));
    conditions.add((value) => `model = ${value}`, model);
    const { where, params } = conditions;
    const sums = "requests, prompt_tokens, completion_tokens, cost_nano_usd";
    const source =
      by === "ref"
        ? `SELECT day, ref_id AS name, ${sums} FROM usage_ref_days ${where}
           UNION ALL SELECT day, CAST(NULL AS TEXT), ${sums} FROM usage_days ${where} AND tagged = FALSE`
        : `SELECT day, ${COLUMNS[by]} AS name, ${sums} FROM usage_days ${where}`;
    return this.#grouped(source, "CAST(NULL AS BIGINT)", params);
  }

  #raw(filter: SeriesFilter, by: SeriesBy): Promise<DaySums[]> {
    const { where, params } = conditionsOf(filter);
    const day =
      this.db.dialect === "sqlite"
        ? "substr(created_at, 1, 10)"
        : "to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')";
    const source = `SELECT ${day} AS day, ${COLUMNS[by]} AS name, 1 AS requests, prompt_tokens, completion_tokens,
        COALESCE(CAST(ROUND(cost * 1000000000.0) AS BIGINT), 0) AS cost_nano_usd,
        CASE WHEN cost IS NULL THEN 1 ELSE 0 END AS unpriced
      FROM usage_records ${where}`;
    return this.#grouped(source, "CAST(SUM(unpriced) AS BIGINT)", params);
  }

  #grouped(source: string, unpriced: string, params: readonly SqlValue[]): Promise<DaySums[]> {
    const sums = ["requests", "prompt_tokens", "completion_tokens", "cost_nano_usd"]
      .map((column) => `CAST(SUM(${column}) AS BIGINT) AS ${column}`)
      .join(", ");
    return this.db.all<DaySums>(
      `SELECT day, name, ${sums}, ${unpriced} AS unpriced FROM (${source}) AS rows_of_days GROUP BY day, name
       ORDER BY SUM(prompt_tokens + completion_tokens) DESC LIMIT ${SUMS_MAX}`,
      params,
    );
  }
}

/** Conditions on usage rows, in the order of the index that finds them. */
export function conditionsOf(filter: SeriesFilter): Conditions {
  const { userId, sinceMs, untilMs, project, model, apiKeyId } = filter;
  const conditions = new Conditions();
  conditions.add((value) => `user_id = ${value}`, userId);
  // A person's rows are found by created_ms, everyone's by created_at.
  const [column, from, to] =
    userId === null ? ["created_at", isoTime(sinceMs), isoTime(untilMs)] : ["created_ms", sinceMs, untilMs];
  conditions.add((value) => `${column} >= ${value}`, from!);
  conditions.add((value) => `${column} < ${value}`, to!);
  conditions.add((value) => `project = ${value}`, project);
  conditions.add((value) => `model = ${value}`, model);
  conditions.add((value) => `api_key_id = ${value}`, apiKeyId);
  return conditions;
}

interface Sums {
  requests: number;
  prompt_tokens: number;
  completion_tokens: number;
  cost_usd: number;
  unpriced: number | null;
}
const noSums = (): Sums => ({
  requests: 0,
  prompt_tokens: 0,
  completion_tokens: 0,
  cost_usd: 0,
  unpriced: 0,
});

function add(sums: Sums, row: DaySums): void {
  sums.requests += row.requests;
  sums.prompt_tokens += row.prompt_tokens;
  sums.completion_tokens += row.completion_tokens;
  sums.cost_usd += row.cost_nano_usd / NANO_PER_USD;
  sums.unpriced = sums.unpriced === null || row.unpriced === null ? null : sums.unpriced + row.unpriced;
}

class Group {
  readonly sums = noSums();
  readonly days = new Map<string, Sums>();

  add(row: DaySums): void {
    add(this.sums, row);
    const day = this.days.get(row.day) ?? noSums();
    add(day, row);
    this.days.set(row.day, day);
  }

  get view() {
    const days = Array.from(this.days, ([day, sums]) => ({ day, ...sums }));
    return { ...this.sums, days: days.sort((a, b) => (a.day < b.day ? -1 : 1)) };
  }
}

function seriesOf(rows: readonly DaySums[]) {
  const groups = new Map<string | null, Group>();
  const totals = noSums();
  for (const row of rows) {
    add(totals, row);
    const group = groups.get(row.name) ?? new Group();
    group.add(row);
    groups.set(row.name, group);
  }
  const sorted = [...groups].sort(
    ([, a], [, b]) => b.sums.cost_usd - a.sums.cost_usd || b.sums.prompt_tokens - a.sums.prompt_tokens,
  );
  const shown = sorted.slice(0, GROUPS_MAX);
  const kept = new Set(shown.map(([name]) => name));
  const rest = new Group();
  for (const row of rows) if (!kept.has(row.name)) rest.add(row);
  return {
    totals,
    groups: shown.map(([name, group]) => ({ name, ...group.view })),
    others: sorted.length > GROUPS_MAX ? { groups: sorted.length - GROUPS_MAX, ...rest.view } : null,
  };
}
