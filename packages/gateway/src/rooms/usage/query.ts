import { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import { wholeNumber } from "../../kernel/method.ts";
import { REF_LENGTH_MAX } from "../../kernel/request-row.ts";
import { Conditions, type Database, type SqlValue } from "../../storage/contract.ts";
import { NO_ID } from "./batch.ts";
import type { QueryResult } from "./routes.ts";
import { DAY_MS, NANO_PER_USD, splitByDay, summed, type Time, utcDay } from "./rows.ts";

const GROUPINGS = ["model", "backend", "ref", "day"] as const;
type GroupBy = (typeof GROUPINGS)[number];

const REFS_MAX = 1024;
const PAGE = { fallback: 100, min: 1, max: 500 };

/** The range of years with four digits, which both databases can hold; bounds are clamped to it. */
const EARLIEST_MS = Date.parse("0001-01-01T00:00:00Z");
const LATEST_MS = Date.parse("9999-12-31T00:00:00Z");

const DATE = /^\d{4}-\d{2}-\d{2}$/;
const RFC3339 = /^(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/;

/** Midnight UTC; null for a date that does not exist. Date.parse would turn 30 February into March. */
function dateMs(text: string): number | null {
  const ms = Date.parse(`${text}T00:00:00Z`);
  return Number.isNaN(ms) || new Date(ms).toISOString().slice(0, 10) !== text ? null : ms;
}

/** Rounded up to a whole millisecond, because rows have no finer time. */
function instantMs(text: string): number | null {
  const match = RFC3339.exec(text);
  if (!match) return null;
  const [, date, time, fraction = "", zone] = match;
  if (dateMs(date!) === null) return null;
  const ms = Date.parse(`${date}T${time}${fraction.slice(0, 4)}${zone!.toUpperCase()}`);
  if (Number.isNaN(ms)) return null;
  return /[1-9]/.test(fraction.slice(4)) ? ms + 1 : ms;
}

/** A date as the upper bound includes that day. */
function boundMs(text: string, field: "since" | "until"): number | null {
  const day = DATE.test(text) ? dateMs(text) : null;
  if (day !== null) return field === "until" ? day + DAY_MS : day;
  return instantMs(text);
}

export function Bound(field: "since" | "until") {
  const problem = `\`${field}\` must be a date (2026-01-31) or an RFC 3339 timestamp (2026-01-31T12:00:00Z)`;
  return z.string(problem).transform((text, context) => {
    const ms = boundMs(text.trim(), field);
    if (ms !== null) return clamp(ms, EARLIEST_MS, LATEST_MS);
    context.addIssue(problem);
    return z.NEVER;
  });
}

const REFS_PROBLEM = "`ref_ids` must be an array of strings";
const Refs = z
  .array(z.string(REFS_PROBLEM), REFS_PROBLEM)
  .transform((entries) => {
    const refs = entries.map((entry) => entry.replaceAll("\u0000", "").trim().slice(0, REF_LENGTH_MAX));
    return [...new Set(refs)].filter((entry) => entry !== "");
  })
  .refine(
    (refs) => refs.length <= REFS_MAX,
    `\`ref_ids\` must have at most ${REFS_MAX} entries; ask in several queries`,
  );

export const clamp = (value: number, min: number, max: number): number => Math.min(max, Math.max(min, value));

export const QueryBody = z.object(
  {
    ref_ids: Refs.optional().describe("Absent or blank: all rows"),
    since: Bound("since").optional().describe("Inclusive: YYYY-MM-DD or an RFC 3339 timestamp"),
    until: Bound("until").optional().describe("Exclusive instant, or a YYYY-MM-DD that is covered whole"),
    group_by: z.enum(GROUPINGS, `\`group_by\` must be one of ${GROUPINGS.join(", ")}`).optional(),
    limit: wholeNumber("`limit` must be a whole number")
      .optional()
      .describe("Rows a page, 1-500; default 100"),
    offset: wholeNumber("`offset` must be a whole number").optional(),
    include_records: z.boolean("`include_records` must be true or false").optional(),
  },
  "The body must be a JSON object; {} asks for everything",
);

export const QUERY_ERRORS = {
  "": "invalid_params",
  ref_ids: "invalid_params",
  since: "bad_since",
  until: "bad_until",
  group_by: "bad_group_by",
  limit: "invalid_params",
  offset: "invalid_params",
  include_records: "invalid_params",
} as const;

type UsageQuery = ReturnType<typeof usageQueryOf>;

export function usageQueryOf(body: z.output<typeof QueryBody>) {
  const { ref_ids: refs = [], limit = PAGE.fallback, offset = 0 } = body;
  return {
    refIds: refs.length === 0 ? null : refs,
    fromMs: body.since ?? EARLIEST_MS,
    belowMs: body.until ?? LATEST_MS,
    groupBy: body.group_by ?? null,
    limit: clamp(limit, PAGE.min, PAGE.max),
    offset: clamp(offset, 0, Number.MAX_SAFE_INTEGER),
    includeRecords: body.include_records === true,
  };
}

/** There can be as many references as requests; an answer says when it leaves groups out. */
const GROUPS_MAX = 10_000;

type RawRecord = NonNullable<z.output<typeof QueryResult>["records"]>[number];

const SUMS = ["requests", "prompt_tokens", "completion_tokens", "cost_nano_usd"] as const;

/** A sum of no rows is null. */
type SumRow = { group_key: string | null } & Record<(typeof SUMS)[number], number | null>;

const toTotals = (row?: SumRow) => ({
  requests: row?.requests ?? 0,
  prompt_tokens: row?.prompt_tokens ?? 0,
  completion_tokens: row?.completion_tokens ?? 0,
  total_tokens: (row?.prompt_tokens ?? 0) + (row?.completion_tokens ?? 0),
  cost_usd: (row?.cost_nano_usd ?? 0) / NANO_PER_USD,
});

/** Repeats the last value up to a power of two: few list lengths mean few statements to prepare. */
function addRefs(sql: Conditions, refs: readonly string[] | null): void {
  if (refs === null) return;
  const length = 2 ** Math.ceil(Math.log2(refs.length));
  const values = Array.from({ length }, (_, i) => sql.value(refs[i] ?? refs.at(-1)!));
  sql.add(`ref_id IN (${values.join(", ")})`);
}

const NO_KEY = "CAST(NULL AS TEXT)";
/** The column of each grouping; `dayMs` is the SQL of a row's day. */
const KEYS: Readonly<Record<GroupBy, (dayMs: string) => string>> = {
  model: () => "model",
  backend: () => "channel",
  ref: () => "ref_id",
  day: (dayMs) => `CAST(${dayMs} AS TEXT)`,
};

export const usageTotals = async (db: Database, query: UsageQuery) =>
  toTotals((await sumsOf(db, query, null))[0]);

export async function usageGroups(db: Database, query: UsageQuery, groupBy: GroupBy) {
  const rows = await sumsOf(db, query, groupBy);
  const nameOf = (key: string | null) => (key === null || groupBy !== "day" ? key : utcDay(Number(key)));
  const groups = rows.slice(0, GROUPS_MAX).map((row) => ({ key: nameOf(row.group_key), ...toTotals(row) }));
  // Sorted here, because databases may not compare keys in byte order. The group without a key comes last.
  groups.sort(
    (a, b) =>
      b.total_tokens - a.total_tokens || (a.key === null ? 1 : b.key === null ? -1 : a.key < b.key ? -1 : 1),
  );
  return { groups, truncated: rows.length > GROUPS_MAX };
}

/** Whole days come from daily sums; the rest of the period is added up from rows. */
async function sumsOf(db: Database, query: UsageQuery, groupBy: GroupBy | null): Promise<SumRow[]> {
  const params: SqlValue[] = [];
  const { days, rest } = splitByDay(query);
  const parts = [
    ...(days ? rollups(params, query, days, groupBy) : []),
    ...rest.map((period) => raw(params, query, period, groupBy)),
  ];
  if (parts.length === 0) return [];
  const grouping = groupBy
    ? `GROUP BY group_key HAVING SUM(requests) > 0
       ORDER BY SUM(prompt_tokens + completion_tokens) DESC LIMIT ${GROUPS_MAX + 1}`
    : "";
  return db.report<SumRow>(
    `SELECT ${groupBy ? "group_key" : `${NO_KEY} AS group_key`}, ${summed(SUMS)}
     FROM (${parts.join(" UNION ALL ")}) AS parts ${grouping}`,
    params,
  );
}

function rollups(params: SqlValue[], { refIds }: UsageQuery, days: Time, groupBy: GroupBy | null): string[] {
  const part = (table: string, key: string, sums: readonly string[], condition: string | null = null) => {
    const sql = new Conditions(params).within("start_ms", days);
    addRefs(sql, refIds);
    if (condition) sql.add(condition);
    return `SELECT ${key} AS group_key, ${sums.join(", ")} FROM ${table} ${sql.where}`;
  };
  const key = groupBy === null ? NO_KEY : KEYS[groupBy]("start_ms");
  const ofAll = `grain_ms = ${DAY_MS} AND user_id = '${NO_ID}' AND channel <> ''`;
  if (refIds) return [part("request_ref_days", key, SUMS)];
  if (groupBy !== "ref") return [part("request_sums", key, SUMS, ofAll)];
  // Requests without a reference: all of them minus those with one.
  const minus = SUMS.map((column) => `-${column}`);
  return [
    part("request_ref_days", key, SUMS),
    part("request_sums", NO_KEY, SUMS, ofAll),
    part("request_ref_days", NO_KEY, minus),
  ];
}

function raw(params: SqlValue[], { refIds }: UsageQuery, period: Time, groupBy: GroupBy | null): string {
  const key = groupBy === null ? NO_KEY : KEYS[groupBy](`ended_ms - ended_ms % ${DAY_MS}`);
  const sql = new Conditions(params).add("channel IS NOT NULL").within("ended_ms", period);
  addRefs(sql, refIds);
  return `SELECT ${key} AS group_key, 1 AS requests, prompt_tokens, completion_tokens,
    COALESCE(cost_nano_usd, 0) AS cost_nano_usd FROM requests ${sql.where}`;
}

export async function usageRows(db: Database, { refIds, limit, offset, ...period }: UsageQuery) {
  const sql = new Conditions().within("created_ms", period);
  addRefs(sql, refIds);
  const rows = await db.report<Omit<RawRecord, "created_at"> & { created_ms: number }>(
    `SELECT id, ref_id, api_key_id, model, backend, prompt_tokens, completion_tokens, total_tokens, cost, created_ms
     FROM usage_records ${sql.where} ORDER BY created_ms DESC, id
     LIMIT ${sql.value(limit)} OFFSET ${sql.value(offset)}`,
    sql.params,
  );
  return rows.map(({ created_ms, ...row }) => ({ ...row, created_at: isoTime(created_ms) }));
}
