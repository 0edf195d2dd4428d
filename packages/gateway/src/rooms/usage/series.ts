import type { Database, SqlValue } from "../../storage/contract.ts";
import { NO_ID } from "./batch.ts";
import { CACHE_COLUMNS, DAY_MS, NANO_PER_USD, utcDay } from "./rows.ts";

export const SERIES_BY = ["model", "backend", "source", "ref", "project", "key"] as const;
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
  backend: "served_by",
  source: "backend",
  ref: "ref_id",
  project: "project",
  key: "api_key_id",
};

interface DaySums {
  start_ms: number;
  name: string | null;
  requests: number;
  prompt_tokens: number;
  completion_tokens: number;
  cost_nano_usd: number;
  cached_tokens: number;
  cache_write_tokens: number;
  cache_saved_nano_usd: number;
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
    const isWholeDays = filter.sinceMs % DAY_MS === 0 && filter.untilMs % DAY_MS === 0;
    const isSummed = filter.userId === null || (isWholeDays && by !== "ref");
    if (!isByKey && isSummed && filter.apiKeyId === null && filter.project === null)
      return this.#kinds(filter, by);
    return isByKey && filter.model === null && isWholeDays
      ? this.#askerDays(filter, by)
      : this.#raw(filter, by);
  }

  #askerDays(
    { userId, sinceMs, untilMs, project, apiKeyId }: SeriesFilter,
    by: SeriesBy,
  ): Promise<DaySums[]> {
    const conditions = daysOf({ sinceMs, untilMs });
    conditions.add((value) => `user_id = ${value}`, userId);
    conditions.add((value) => `project = ${value}`, project);
    conditions.add((value) => `api_key_id = ${value}`, apiKeyId);
    const name = by === "key" ? "api_key_id" : "NULLIF(project, '')";
    const source = `SELECT start_ms, ${name} AS name, ${FIGURES}, unpriced
      FROM request_asker_days ${conditions.where} AND channel <> ''`;
    return this.#grouped(source, conditions.params);
  }

  /** Everyone's, or a person's, from the sums of whole days. */
  #kinds({ userId, sinceMs, untilMs, model }: SeriesFilter, by: SeriesBy): Promise<DaySums[]> {
    const conditions = daysOf({ sinceMs, untilMs: untilMs + DAY_MS - 1 });
    conditions.add((value) => `model = ${value}`, model);
    const { where, params } = conditions;
    const whose = `user_id = $${params.push(userId ?? NO_ID)}`;
    const ofAll = (name: string, unpriced: string) => `SELECT start_ms, ${name} AS name, ${FIGURES},
      ${unpriced} AS unpriced FROM request_sums ${where} AND grain_ms = ${DAY_MS} AND ${whose} AND channel <> ''`;
    if (by !== "ref") return this.#grouped(ofAll(by === "source" ? "channel" : by, "unpriced"), params);
    // Without a reference is what all have and those with one do not.
    const [noName, unknown] = ["CAST(NULL AS TEXT)", "CAST(NULL AS BIGINT)"];
    const minus = FIGURES.split(", ").map((column) => `-${column}`);
    const ofRefs = (name: string, figures: string) =>
      `SELECT start_ms, ${name} AS name, ${figures}, ${unknown} AS unpriced FROM request_ref_days ${where}`;
    const parts = [ofRefs("ref_id", FIGURES), ofAll(noName, unknown), ofRefs(noName, minus.join(", "))];
    return this.#grouped(parts.join(" UNION ALL "), params);
  }

  #raw(filter: SeriesFilter, by: SeriesBy): Promise<DaySums[]> {
    const { where, params } = conditionsOf(filter);
    const source = `SELECT created_ms - created_ms % ${DAY_MS} AS start_ms, ${COLUMNS[by]} AS name, 1 AS requests,
        prompt_tokens, completion_tokens, COALESCE(cost_nano_usd, 0) AS cost_nano_usd,
        ${CACHE_COLUMNS.join(", ")}, CASE WHEN unpriced THEN 1 ELSE 0 END AS unpriced
      FROM usage_records ${where}`;
    return this.#grouped(source, params);
  }

  #grouped(source: string, params: readonly SqlValue[]): Promise<DaySums[]> {
    const sums = `${FIGURES}, unpriced`
      .split(", ")
      .map((column) => `CAST(SUM(${column}) AS BIGINT) AS ${column}`)
      .join(", ");
    return this.db.all<DaySums>(
      `SELECT start_ms, name, ${sums} FROM (${source}) AS rows_of_days GROUP BY start_ms, name
       HAVING SUM(requests) > 0
       ORDER BY SUM(prompt_tokens + completion_tokens) DESC LIMIT ${SUMS_MAX}`,
      params,
    );
  }
}

const FIGURES = `requests, prompt_tokens, completion_tokens, cost_nano_usd, ${CACHE_COLUMNS.join(", ")}`;

function daysOf({ sinceMs, untilMs }: Pick<SeriesFilter, "sinceMs" | "untilMs">): Conditions {
  const conditions = new Conditions();
  conditions.add((value) => `start_ms >= ${value}`, sinceMs - (sinceMs % DAY_MS));
  conditions.add((value) => `start_ms < ${value}`, untilMs - (untilMs % DAY_MS));
  return conditions;
}

/** Conditions on usage rows, in the order of the index that finds them. */
export function conditionsOf(filter: SeriesFilter): Conditions {
  const { userId, sinceMs, untilMs, project, model, apiKeyId } = filter;
  const conditions = new Conditions();
  conditions.add((value) => `user_id = ${value}`, userId);
  conditions.add((value) => `created_ms >= ${value}`, sinceMs);
  conditions.add((value) => `created_ms < ${value}`, untilMs);
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
  cached_tokens: number;
  cache_write_tokens: number;
  cache_saved_usd: number;
  unpriced: number | null;
}
const noSums = (): Sums => ({
  requests: 0,
  prompt_tokens: 0,
  completion_tokens: 0,
  cost_usd: 0,
  cached_tokens: 0,
  cache_write_tokens: 0,
  cache_saved_usd: 0,
  unpriced: 0,
});

function add(sums: Sums, row: DaySums): void {
  sums.requests += row.requests;
  sums.prompt_tokens += row.prompt_tokens;
  sums.completion_tokens += row.completion_tokens;
  sums.cost_usd += row.cost_nano_usd / NANO_PER_USD;
  sums.cached_tokens += row.cached_tokens;
  sums.cache_write_tokens += row.cache_write_tokens;
  sums.cache_saved_usd += row.cache_saved_nano_usd / NANO_PER_USD;
  sums.unpriced = sums.unpriced === null || row.unpriced === null ? null : sums.unpriced + row.unpriced;
}

class SeriesGroup {
  readonly sums = noSums();
  readonly days = new Map<number, Sums>();

  add(row: DaySums): void {
    add(this.sums, row);
    const day = this.days.get(row.start_ms) ?? noSums();
    add(day, row);
    this.days.set(row.start_ms, day);
  }

  get view() {
    const days = [...this.days].sort(([a], [b]) => a - b);
    return { ...this.sums, days: days.map(([startMs, sums]) => ({ day: utcDay(startMs), ...sums })) };
  }
}

function seriesOf(rows: readonly DaySums[]) {
  const groups = new Map<string | null, SeriesGroup>();
  const totals = noSums();
  for (const row of rows) {
    add(totals, row);
    const group = groups.get(row.name) ?? new SeriesGroup();
    group.add(row);
    groups.set(row.name, group);
  }
  const sorted = [...groups].sort(
    ([, a], [, b]) => b.sums.cost_usd - a.sums.cost_usd || b.sums.prompt_tokens - a.sums.prompt_tokens,
  );
  const shown = sorted.slice(0, GROUPS_MAX);
  const kept = new Set(shown.map(([name]) => name));
  const rest = new SeriesGroup();
  for (const row of rows) if (!kept.has(row.name)) rest.add(row);
  return {
    totals,
    groups: shown.map(([name, group]) => ({ name, ...group.view })),
    others: sorted.length > GROUPS_MAX ? { groups: sorted.length - GROUPS_MAX, ...rest.view } : null,
  };
}
