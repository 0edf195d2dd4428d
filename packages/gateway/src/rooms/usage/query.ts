import type { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import { Conditions, type Database, type SqlValue } from "../../storage/contract.ts";
import { NO_ID } from "./batch.ts";
import type { GroupBy, UsageQuery } from "./query-params.ts";
import type { QueryResult } from "./routes.ts";
import { DAY_MS, NANO_PER_USD, splitByDay, summed, type Time, utcDay } from "./rows.ts";

/** Distinct references may be as many as requests; past this an answer says that it was cut. */
const GROUPS_MAX = 10_000;

type Result = z.output<typeof QueryResult>;
type Totals = Result["totals"];
type Group = NonNullable<Result["groups"]>[number];
type RawRecord = NonNullable<Result["records"]>[number];

interface SumRow {
  group_key: string | null;
  requests: number | null;
  prompt_tokens: number | null;
  completion_tokens: number | null;
  cost_nano_usd: number | null;
}

const toTotals = (row: SumRow | null): Totals => ({
  requests: row?.requests ?? 0,
  prompt_tokens: row?.prompt_tokens ?? 0,
  completion_tokens: row?.completion_tokens ?? 0,
  total_tokens: (row?.prompt_tokens ?? 0) + (row?.completion_tokens ?? 0),
  cost_usd: (row?.cost_nano_usd ?? 0) / NANO_PER_USD,
});

/** `IN` lists come in few lengths, so that few statement texts exist: the last value is repeated. */
function padded<T>(values: readonly T[]): T[] {
  const length = 2 ** Math.ceil(Math.log2(Math.max(1, values.length)));
  return [...values, ...Array.from({ length: length - values.length }, () => values.at(-1)!)];
}

function isIn(sql: Conditions, column: string, values: readonly string[]): string {
  return `${column} IN (${padded(values)
    .map((value) => sql.value(value))
    .join(", ")})`;
}

const SUMS = ["requests", "prompt_tokens", "completion_tokens", "cost_nano_usd"];
const NO_KEY = "CAST(NULL AS TEXT)";
/** What each grouping goes by, where a day begins at the given instant. */
const KEYS: Readonly<Record<GroupBy, (dayMs: string) => string>> = {
  model: () => "model",
  backend: () => "channel",
  ref: () => "ref_id",
  day: (dayMs) => `CAST(${dayMs} AS TEXT)`,
};

/** The usage query of the admin surface: sums from daily rollups as far as the period's whole days reach. */
export class UsageQueries {
  constructor(readonly db: Database) {}

  async totals(query: UsageQuery): Promise<Totals> {
    const rows = await this.#sums(query, null);
    return toTotals(rows[0] ?? null);
  }

  async groups(query: UsageQuery, groupBy: GroupBy): Promise<{ groups: Group[]; truncated: boolean }> {
    const rows = await this.#sums(query, groupBy);
    const nameOf = (key: string | null) => (key === null || groupBy !== "day" ? key : utcDay(Number(key)));
    const groups = rows.slice(0, GROUPS_MAX).map((row) => ({ key: nameOf(row.group_key), ...toTotals(row) }));
    // Ties by key in byte order, which a database's own collation need not be; no key comes last.
    groups.sort(
      (a, b) =>
        b.total_tokens - a.total_tokens ||
        (a.key === null ? 1 : b.key === null ? -1 : a.key < b.key ? -1 : 1),
    );
    return { groups, truncated: rows.length > GROUPS_MAX };
  }

  async #sums(query: UsageQuery, groupBy: GroupBy | null): Promise<SumRow[]> {
    const params: SqlValue[] = [];
    const { days, rest } = splitByDay(query);
    const parts = [
      ...(days ? this.#rollups(params, query, days, groupBy) : []),
      ...rest.map((period) => this.#raw(params, query, period, groupBy)),
    ];
    if (parts.length === 0) return [];
    const grouping = groupBy
      ? `GROUP BY group_key HAVING SUM(requests) > 0
         ORDER BY SUM(prompt_tokens + completion_tokens) DESC LIMIT ${GROUPS_MAX + 1}`
      : "";
    return this.db.report<SumRow>(
      `SELECT ${groupBy ? "group_key" : `${NO_KEY} AS group_key`}, ${summed(SUMS)}
       FROM (${parts.join(" UNION ALL ")}) AS parts ${grouping}`,
      params,
    );
  }

  #rollups(params: SqlValue[], { refIds }: UsageQuery, days: Time, groupBy: GroupBy | null): string[] {
    const part = (table: string, key: string, sums: readonly string[], condition: string | null = null) => {
      const sql = new Conditions(params).within("start_ms", days);
      if (refIds) sql.add(isIn(sql, "ref_id", refIds));
      if (condition) sql.add(condition);
      return `SELECT ${key} AS group_key, ${sums.join(", ")} FROM ${table} ${sql.where}`;
    };
    const key = groupBy === null ? NO_KEY : KEYS[groupBy]("start_ms");
    const ofAll = `grain_ms = ${DAY_MS} AND user_id = '${NO_ID}' AND channel <> ''`;
    if (refIds) return [part("request_ref_days", key, SUMS)];
    if (groupBy !== "ref") return [part("request_sums", key, SUMS, ofAll)];
    // Without a reference is what all have and those with one do not.
    const minus = SUMS.map((column) => `-${column}`);
    return [
      part("request_ref_days", key, SUMS),
      part("request_sums", NO_KEY, SUMS, ofAll),
      part("request_ref_days", NO_KEY, minus),
    ];
  }

  #raw(params: SqlValue[], { refIds }: UsageQuery, period: Time, groupBy: GroupBy | null): string {
    const key = groupBy === null ? NO_KEY : KEYS[groupBy](`ended_ms - ended_ms % ${DAY_MS}`);
    const sql = new Conditions(params).add("channel IS NOT NULL").within("ended_ms", period);
    if (refIds) sql.add(isIn(sql, "ref_id", refIds));
    return `SELECT ${key} AS group_key, 1 AS requests, prompt_tokens, completion_tokens,
      COALESCE(cost_nano_usd, 0) AS cost_nano_usd FROM requests ${sql.where}`;
  }

  async records({ refIds, limit, offset, ...period }: UsageQuery): Promise<RawRecord[]> {
    const sql = new Conditions().within("created_ms", period);
    if (refIds) sql.add(isIn(sql, "ref_id", refIds));
    const rows = await this.db.report<Omit<RawRecord, "created_at"> & { created_ms: number }>(
      `SELECT id, ref_id, api_key_id, model, backend, prompt_tokens, completion_tokens, total_tokens, cost, created_ms
       FROM usage_records ${sql.where} ORDER BY created_ms DESC, id
       LIMIT ${sql.value(limit)} OFFSET ${sql.value(offset)}`,
      sql.params,
    );
    return rows.map(({ created_ms, ...row }) => ({ ...row, created_at: isoTime(created_ms) }));
  }
}
