import { isoTime } from "../../kernel/clock.ts";
import {
  type Database,
  insertRows,
  type Queryable,
  selectIn,
  type Transaction,
} from "../../storage/contract.ts";
import { utcMonth } from "./calendar.ts";
import { type MonthKey, type MonthTotals, NANO_PER_USD, type UsageRow, WHOLE_USER } from "./rows.ts";

const ROWS = `usage_records (id, user_id, key_id, project, api_key_id, model, backend, prompt_tokens,
  completion_tokens, total_tokens, cost, created_at, created_ms, ref_id, points, account_type, estimated)`;

/** A rollup table: rows of keys and sums, where inserting what exists adds to it. */
function rollup(table: string, keys: readonly string[], sums: readonly string[]) {
  const added = sums.map((column) => `${column} = ${table}.${column} + excluded.${column}`);
  return {
    into: `${table} (${[...keys, ...sums].join(", ")})`,
    adding: `ON CONFLICT (${keys.join(", ")}) DO UPDATE SET ${added.join(", ")}`,
  };
}
const DAY_SUMS = ["requests", "prompt_tokens", "completion_tokens", "total_tokens", "cost_nano_usd"];
const DAYS = rollup("usage_days", ["day", "model", "backend", "tagged"], DAY_SUMS);
const REF_DAYS = rollup("usage_ref_days", ["ref_id", "day", "model", "backend"], DAY_SUMS);
const MONTHS = rollup(
  "usage_months",
  ["user_id", "month", "project"],
  ["requests", "tokens", "cost_nano_usd", "quota_tokens", "quota_cost_nano_usd"],
);

/** What a month's rollup has become after a batch. */
export interface MonthAfter extends MonthKey {
  quotaTokens: number;
  quotaCostNanoUsd: number;
}

interface Sum<Key> {
  key: Key;
  values: number[];
}

/** Sums of `values` by key, in the order of the keys: two writers then lock rows in the same order. */
function sumBy<Key extends readonly (string | boolean)[]>(
  entries: Iterable<{ key: Key; values: number[] }>,
): Sum<Key>[] {
  const sums = new Map<string, Sum<Key>>();
  for (const { key, values } of entries) {
    const id = key.join("\u0000");
    const sum = sums.get(id);
    if (sum) for (let i = 0; i < values.length; i++) sum.values[i]! += values[i]!;
    else sums.set(id, { key, values: [...values] });
  }
  return [...sums.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, sum]) => sum);
}

const totalTokens = (row: UsageRow) => row.promptTokens + row.completionTokens;

/** A row with its time as text, of which month and day are parts: formatting a date costs more than a slice. */
interface StampedRow extends UsageRow {
  createdAt: string;
}
const monthOf = ({ createdAt }: StampedRow) => createdAt.slice(0, 7);
const dayOf = ({ createdAt }: StampedRow) => createdAt.slice(0, 10);

function monthSums(rows: readonly StampedRow[]) {
  const entries = rows.flatMap((row) => {
    const cost = row.costNanoUsd ?? 0;
    const counted = row.points === null;
    const values = [1, totalTokens(row), cost, counted ? totalTokens(row) : 0, counted ? cost : 0];
    const month = monthOf(row);
    const whole = { key: [row.userId, month, WHOLE_USER] as const, values };
    return row.project === null
      ? [whole]
      : [whole, { key: [row.userId, month, row.project] as const, values }];
  });
  return sumBy(entries);
}

const dayValues = (row: UsageRow) => [
  1,
  row.promptTokens,
  row.completionTokens,
  totalTokens(row),
  row.costNanoUsd ?? 0,
];

export interface ListOptions {
  userId: string;
  project: string | null;
  limit: number;
  offset: number;
  /** The beginning of a month; rows before it are no longer kept, and about to be deleted. */
  fromMs: number;
}

export interface ListedRow {
  id: string;
  model: string;
  backend: string;
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  cost: number | null;
  created_at: string;
  ref_id: string | null;
  api_key_id: string;
  project: string | null;
  points: number | null;
  account_type: "user" | "group" | null;
  estimated: boolean;
}

/** SQL of usage rows and of their rollups, which change only together. */
export class UsageStore {
  constructor(readonly db: Database) {}

  /** Which of these requests have their row already. */
  async existing(on: Queryable, ids: readonly string[]): Promise<Set<string>> {
    const rows = await selectIn<{ id: string }>(
      on,
      (list) => `SELECT id FROM usage_records WHERE id IN ${list}`,
      ids,
    );
    return new Set(rows.map(({ id }) => id));
  }

  /**
   * Inserts rows that are known to be new and bumps every rollup. Should another writer have inserted one of
   * them meanwhile, its unique id makes this throw and the transaction roll back.
   */
  async insert(tx: Transaction, unstamped: readonly UsageRow[]): Promise<MonthAfter[]> {
    const rows = unstamped.map((row) => ({ ...row, createdAt: isoTime(row.createdAtMs) }));
    await insertRows(
      tx,
      ROWS,
      rows.map((row) => [
        row.id,
        row.userId,
        row.keyId,
        row.project,
        row.apiKeyId,
        row.model,
        row.backend,
        row.promptTokens,
        row.completionTokens,
        totalTokens(row),
        row.costNanoUsd === null ? null : row.costNanoUsd / NANO_PER_USD,
        row.createdAt,
        row.createdAtMs,
        row.refId,
        row.points,
        row.accountType,
        row.estimated,
      ]),
    );
    const months = await insertRows<{
      user_id: string;
      month: string;
      project: string;
      quota_tokens: number;
      quota_cost_nano_usd: number;
    }>(
      tx,
      MONTHS.into,
      monthSums(rows).map(({ key, values }) => [...key, ...values]),
      `${MONTHS.adding} RETURNING user_id, month, project, quota_tokens, quota_cost_nano_usd`,
    );
    const tagged = rows.filter(({ refId }) => refId !== null);
    if (tagged.length > 0) {
      const sums = sumBy(
        tagged.map((row) => ({
          key: [row.refId!, dayOf(row), row.model, row.backend],
          values: dayValues(row),
        })),
      );
      await insertRows(
        tx,
        REF_DAYS.into,
        sums.map(({ key, values }) => [...key, ...values]),
        REF_DAYS.adding,
      );
    }
    // Every instance bumps the same few rows of the day, so they are locked last and for the shortest time.
    const days = sumBy(
      rows.map((row) => ({
        key: [dayOf(row), row.model, row.backend, row.refId !== null],
        values: dayValues(row),
      })),
    );
    await insertRows(
      tx,
      DAYS.into,
      days.map(({ key, values }) => [...key, ...values]),
      DAYS.adding,
    );
    return months.map((row) => ({
      userId: row.user_id,
      month: row.month,
      project: row.project,
      quotaTokens: row.quota_tokens,
      quotaCostNanoUsd: row.quota_cost_nano_usd,
    }));
  }

  async month({ userId, month, project }: MonthKey): Promise<MonthTotals> {
    const row = await this.db.get<{
      requests: number;
      tokens: number;
      cost_nano_usd: number;
      quota_tokens: number;
      quota_cost_nano_usd: number;
    }>(
      `SELECT requests, tokens, cost_nano_usd, quota_tokens, quota_cost_nano_usd FROM usage_months
       WHERE user_id = $1 AND month = $2 AND project = $3`,
      [userId, month, project],
    );
    return {
      requests: row?.requests ?? 0,
      tokens: row?.tokens ?? 0,
      costNanoUsd: row?.cost_nano_usd ?? 0,
      quotaTokens: row?.quota_tokens ?? 0,
      quotaCostNanoUsd: row?.quota_cost_nano_usd ?? 0,
    };
  }

  async list({ userId, project, limit, offset, fromMs }: ListOptions): Promise<ListedRow[]> {
    const narrowed = project === null ? "" : "AND project = $5";
    const rows = await this.db.all<ListedRow>(
      `SELECT id, model, backend, prompt_tokens, completion_tokens, total_tokens, cost, created_at, ref_id,
         api_key_id, project, points, account_type, estimated
       FROM usage_records WHERE user_id = $1 AND created_ms >= $4 ${narrowed}
       ORDER BY created_ms DESC, id LIMIT $2 OFFSET $3`,
      [userId, limit, offset, fromMs, ...(project === null ? [] : [project])],
    );
    return rows.map((row) => ({ ...row, estimated: Boolean(row.estimated) }));
  }

  /** How many rows `list` has in all, from the rollups: counting rows would cost more with each of them. */
  async count({
    userId,
    project,
    fromMs,
  }: Pick<ListOptions, "userId" | "project" | "fromMs">): Promise<number> {
    const row = await this.db.get<{ total: number | null }>(
      `SELECT CAST(SUM(requests) AS BIGINT) AS total FROM usage_months
       WHERE user_id = $1 AND project = $2 AND month >= $3`,
      [userId, project ?? WHOLE_USER, utcMonth(fromMs)],
    );
    return row?.total ?? 0;
  }

  /** Deletes some of the rows that are older than `before`; the rollups keep what they said. */
  deleteBefore(before: string, rowsMax: number): Promise<number> {
    return this.db.run(
      `DELETE FROM usage_records WHERE id IN
         (SELECT id FROM usage_records WHERE created_at < $1 ORDER BY created_at LIMIT $2)`,
      [before, rowsMax],
    );
  }
}
