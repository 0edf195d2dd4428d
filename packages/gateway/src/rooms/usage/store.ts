import {
  type Database,
  insertRows,
  type Queryable,
  type SqlValue,
  selectIn,
  type Transaction,
} from "../../storage/contract.ts";
import { Batch } from "./batch.ts";
import { readKeySpend } from "./key-spend.ts";
import {
  type KeySpend,
  type MonthKey,
  type MonthTotals,
  NANO_PER_USD,
  type UsageRow,
  WHOLE_USER,
} from "./rows.ts";
import { Sums } from "./sums.ts";

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
const KEY_DAYS = rollup(
  "usage_key_days",
  ["day", "api_key_id", "project", "user_id"],
  ["requests", "prompt_tokens", "completion_tokens", "cost_nano_usd", "unpriced"],
);
const MONTHS = rollup(
  "usage_months",
  ["user_id", "month", "project"],
  [
    "requests",
    "tokens",
    "cost_nano_usd",
    "quota_tokens",
    "quota_cost_nano_usd",
    "key_quota_tokens",
    "key_quota_cost_nano_usd",
  ],
);

const QUOTA_COLUMNS =
  "user_id, month, project, quota_tokens, quota_cost_nano_usd, key_quota_tokens, key_quota_cost_nano_usd";

/** What of a month's rollup is compared with quotas. */
export interface MonthQuota
  extends MonthKey,
    Pick<MonthTotals, "quotaTokens" | "quotaCostNanoUsd" | "keyQuotaTokens" | "keyQuotaCostNanoUsd"> {}

/** What a batch adds to the rollup of days. */
type DaySumRows = readonly (readonly SqlValue[])[];

/** What a batch of rows left the rollups like. */
export interface WrittenSums {
  months: MonthQuota[];
  keys: KeySpend[];
}

interface QuotaRow {
  user_id: string;
  month: string;
  project: string;
  quota_tokens: number;
  quota_cost_nano_usd: number;
  key_quota_tokens: number;
  key_quota_cost_nano_usd: number;
}

const toQuota = (row: QuotaRow): MonthQuota => ({
  userId: row.user_id,
  month: row.month,
  project: row.project,
  quotaTokens: row.quota_tokens,
  quotaCostNanoUsd: row.quota_cost_nano_usd,
  keyQuotaTokens: row.key_quota_tokens,
  keyQuotaCostNanoUsd: row.key_quota_cost_nano_usd,
});

const toValues = (row: UsageRow, createdAt: string): SqlValue[] => [
  row.id,
  row.userId,
  row.keyId,
  row.project,
  row.apiKeyId,
  row.model,
  row.backend,
  row.promptTokens,
  row.completionTokens,
  row.promptTokens + row.completionTokens,
  row.costNanoUsd === null ? null : row.costNanoUsd / NANO_PER_USD,
  createdAt,
  row.createdAtMs,
  row.refId,
  row.points,
  row.accountType,
  row.estimated,
];

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
  async insert(tx: Transaction, rows: readonly UsageRow[]): Promise<WrittenSums> {
    const { days, ...written } = await this.insertExceptDays(tx, rows);
    await this.addDays(tx, days);
    return written;
  }

  /** The same without the rollup of days, which `addDays` bumps at the end of the transaction. */
  async insertExceptDays(
    tx: Transaction,
    rows: readonly UsageRow[],
  ): Promise<WrittenSums & { days: DaySumRows }> {
    const batch = new Batch();
    const values = rows.map((row) => toValues(row, batch.add(row)));
    await insertRows(tx, ROWS, values);
    const rollups = batch.rollUp();
    const months = await this.#addToMonths(tx, rollups.months.rows());
    const keys = await rollups.keys.write(tx);
    if (rollups.refDays.all.length > 0)
      await insertRows(tx, REF_DAYS.into, rollups.refDays.rows(), REF_DAYS.adding);
    await insertRows(tx, KEY_DAYS.into, rollups.keyDays.rows(), KEY_DAYS.adding);
    return { months, keys, days: rollups.days.rows() };
  }

  /** Every instance bumps the same few rows of the day, so they are locked last and for the shortest time. */
  async addDays(tx: Transaction, days: DaySumRows): Promise<void> {
    await insertRows(tx, DAYS.into, days, DAYS.adding);
  }

  async #addToMonths(tx: Transaction, rows: readonly (readonly SqlValue[])[]): Promise<MonthQuota[]> {
    const suffix = `${MONTHS.adding} RETURNING ${QUOTA_COLUMNS}`;
    return (await insertRows<QuotaRow>(tx, MONTHS.into, rows, suffix)).map(toQuota);
  }

  /**
   * The months' sums, locked until the end of the transaction. Months without a row get one, so that
   * two writers who begin a month cannot both find it empty.
   */
  async lockMonths(tx: Transaction, keys: readonly MonthKey[]): Promise<MonthQuota[]> {
    const sums = new Sums();
    for (const { userId, month, project } of keys) sums.add([userId, month, project], [0, 0, 0, 0, 0, 0, 0]);
    if (tx.dialect === "postgres") return this.#addToMonths(tx, sums.rows());
    // SQLite's transactions are exclusive, so that reading is enough.
    return this.months(tx, keys);
  }

  /** The months' sums as they are, each once. */
  async months(on: Queryable, keys: readonly MonthKey[]): Promise<MonthQuota[]> {
    const byName = new Map(keys.map((key) => [`${key.userId} ${key.month} ${key.project}`, key]));
    const months: MonthQuota[] = [];
    for (const key of byName.values()) months.push({ ...key, ...(await this.month(key, on)) });
    return months;
  }

  /** Counts a debt that the quota of this month pays: as use of the user and of the user's keys, not as a request. */
  async addDebt(
    tx: Transaction,
    { userId, month, costNanoUsd }: Omit<MonthKey, "project"> & { costNanoUsd: number },
  ): Promise<MonthQuota[]> {
    return this.#addToMonths(tx, [[userId, month, WHOLE_USER, 0, 0, 0, 0, costNanoUsd, 0, costNanoUsd]]);
  }

  async month({ userId, month, project }: MonthKey, on: Queryable = this.db): Promise<MonthTotals> {
    const row = await on.get<{
      requests: number;
      tokens: number;
      cost_nano_usd: number;
      quota_tokens: number;
      quota_cost_nano_usd: number;
      key_quota_tokens: number;
      key_quota_cost_nano_usd: number;
    }>(
      `SELECT requests, tokens, cost_nano_usd, quota_tokens, quota_cost_nano_usd, key_quota_tokens,
         key_quota_cost_nano_usd FROM usage_months
       WHERE user_id = $1 AND month = $2 AND project = $3`,
      [userId, month, project],
    );
    return {
      requests: row?.requests ?? 0,
      tokens: row?.tokens ?? 0,
      costNanoUsd: row?.cost_nano_usd ?? 0,
      quotaTokens: row?.quota_tokens ?? 0,
      quotaCostNanoUsd: row?.quota_cost_nano_usd ?? 0,
      keyQuotaTokens: row?.key_quota_tokens ?? 0,
      keyQuotaCostNanoUsd: row?.key_quota_cost_nano_usd ?? 0,
    };
  }

  keySpend(keyId: string, on: Queryable = this.db): Promise<KeySpend> {
    return readKeySpend(on, keyId);
  }

  /** Deletes some of the rows that are older than `before`; the rollups keep their sums. */
  deleteBefore(before: string, rowsMax: number): Promise<number> {
    return this.db.run(
      `DELETE FROM usage_records WHERE created_at < $1 AND id IN
         (SELECT id FROM usage_records WHERE created_at < $1 ORDER BY created_at LIMIT $2)`,
      [before, rowsMax],
    );
  }
}
