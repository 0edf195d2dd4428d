import { isoTime } from "../../kernel/clock.ts";
import type { Database, SqlValue } from "../../storage/contract.ts";
import { NO_ID } from "./batch.ts";
import type { GroupBy, UsageQuery } from "./query-params.ts";
import { DAY_MS, NANO_PER_USD, utcDay } from "./rows.ts";

/** Distinct references may be as many as requests; past this an answer says that it was cut. */
const GROUPS_MAX = 10_000;

interface Totals {
  requests: number;
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cost_usd: number;
}
export interface Group extends Totals {
  key: string | null;
}
interface RawRecord {
  id: string;
  ref_id: string | null;
  api_key_id: string;
  model: string;
  backend: string;
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cost: number | null;
  created_at: string;
}

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

/** Whole days and the rest of a period: only the rest needs raw rows. */
interface Split {
  /** Starts of days from the first, inclusive, to the second, exclusive; null ends are open. */
  days: { fromMs: number | null; toMs: number | null } | null;
  /** Periods in milliseconds, upper bound exclusive. */
  rest: { fromMs: number; toMs: number }[];
}

function splitPeriod(sinceMs: number | null, untilMs: number | null): Split {
  if (sinceMs !== null && untilMs !== null && sinceMs >= untilMs) return { days: null, rest: [] };
  const firstDayMs = sinceMs === null ? null : Math.ceil(sinceMs / DAY_MS) * DAY_MS;
  const endDayMs = untilMs === null ? null : Math.floor(untilMs / DAY_MS) * DAY_MS;
  if (firstDayMs !== null && endDayMs !== null && firstDayMs > endDayMs) {
    return { days: null, rest: [{ fromMs: sinceMs!, toMs: untilMs! }] };
  }
  const rest: Split["rest"] = [];
  if (firstDayMs !== null && sinceMs! < firstDayMs) rest.push({ fromMs: sinceMs!, toMs: firstDayMs });
  if (endDayMs !== null && endDayMs < untilMs!) rest.push({ fromMs: endDayMs, toMs: untilMs! });
  const days = { fromMs: firstDayMs, toMs: endDayMs };
  return { days: firstDayMs !== null && firstDayMs === endDayMs ? null : days, rest };
}

/** `IN` lists come in few lengths, so that few statement texts exist: the last value is repeated. */
function padded<T>(values: readonly T[]): T[] {
  const length = 2 ** Math.ceil(Math.log2(Math.max(1, values.length)));
  return [...values, ...Array.from({ length: length - values.length }, () => values.at(-1)!)];
}

/** Collects conditions and their values in placeholder order. */
class Sql {
  readonly params: SqlValue[] = [];
  value(value: SqlValue): string {
    return `$${this.params.push(value)}`;
  }
  isIn(column: string, values: readonly string[]): string {
    return `${column} IN (${padded(values)
      .map((value) => this.value(value))
      .join(", ")})`;
  }
  where(conditions: readonly (string | null)[]): string {
    const given = conditions.filter((condition) => condition !== null);
    return given.length ? `WHERE ${given.join(" AND ")}` : "";
  }
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
    const sql = new Sql();
    const { days, rest } = splitPeriod(query.sinceMs, query.untilMs);
    const parts = [
      ...(days ? this.#rollups(sql, { days, refIds: query.refIds, groupBy }) : []),
      ...rest.map((period) => this.#raw(sql, { ...period, refIds: query.refIds, groupBy })),
    ];
    if (parts.length === 0) return [];
    const sums = SUMS.map((column) => `CAST(SUM(${column}) AS BIGINT) AS ${column}`);
    const grouping = groupBy
      ? `GROUP BY group_key HAVING SUM(requests) > 0
         ORDER BY SUM(prompt_tokens + completion_tokens) DESC LIMIT ${GROUPS_MAX + 1}`
      : "";
    return this.db.all<SumRow>(
      `SELECT ${groupBy ? "group_key" : `${NO_KEY} AS group_key`}, ${sums.join(", ")}
       FROM (${parts.join(" UNION ALL ")}) AS parts ${grouping}`,
      sql.params,
    );
  }

  #rollups(
    sql: Sql,
    {
      days,
      refIds,
      groupBy,
    }: { days: NonNullable<Split["days"]>; refIds: string[] | null; groupBy: GroupBy | null },
  ): string[] {
    const part = (table: string, key: string, sums: readonly string[], condition: string | null) => {
      const from = days.fromMs === null ? null : `start_ms >= ${sql.value(days.fromMs)}`;
      const to = days.toMs === null ? null : `start_ms < ${sql.value(days.toMs)}`;
      return `SELECT ${key} AS group_key, ${sums.join(", ")} FROM ${table} ${sql.where([from, to, condition])}`;
    };
    const key = groupBy === null ? NO_KEY : KEYS[groupBy]("start_ms");
    const ofAll = `grain_ms = ${DAY_MS} AND user_id = '${NO_ID}' AND channel <> ''`;
    if (refIds) return [part("request_ref_days", key, SUMS, sql.isIn("ref_id", refIds))];
    if (groupBy !== "ref") return [part("request_sums", key, SUMS, ofAll)];
    // Without a reference is what all have and those with one do not.
    const minus = SUMS.map((column) => `-${column}`);
    return [
      part("request_ref_days", key, SUMS, null),
      part("request_sums", NO_KEY, SUMS, ofAll),
      part("request_ref_days", NO_KEY, minus, null),
    ];
  }

  #raw(
    sql: Sql,
    options: { fromMs: number; toMs: number; refIds: string[] | null; groupBy: GroupBy | null },
  ): string {
    const { fromMs, toMs, refIds, groupBy } = options;
    const key = groupBy === null ? NO_KEY : KEYS[groupBy](`ended_ms - ended_ms % ${DAY_MS}`);
    return `SELECT ${key} AS group_key, 1 AS requests, prompt_tokens, completion_tokens,
      COALESCE(cost_nano_usd, 0) AS cost_nano_usd FROM requests
      ${sql.where([
        "channel IS NOT NULL",
        `ended_ms >= ${sql.value(fromMs)}`,
        `ended_ms < ${sql.value(toMs)}`,
        refIds && sql.isIn("ref_id", refIds),
      ])}`;
  }

  async records({ sinceMs, untilMs, refIds, limit, offset }: UsageQuery): Promise<RawRecord[]> {
    const sql = new Sql();
    const conditions = sql.where([
      sinceMs === null ? null : `created_ms >= ${sql.value(sinceMs)}`,
      untilMs === null ? null : `created_ms < ${sql.value(untilMs)}`,
      refIds && sql.isIn("ref_id", refIds),
    ]);
    const rows = await this.db.all<Omit<RawRecord, "created_at"> & { created_ms: number }>(
      `SELECT id, ref_id, api_key_id, model, backend, prompt_tokens, completion_tokens, total_tokens, cost, created_ms
       FROM usage_records ${conditions} ORDER BY created_ms DESC, id
       LIMIT ${sql.value(limit)} OFFSET ${sql.value(offset)}`,
      sql.params,
    );
    return rows.map(({ created_ms, ...row }) => ({ ...row, created_at: isoTime(created_ms) }));
  }
}
