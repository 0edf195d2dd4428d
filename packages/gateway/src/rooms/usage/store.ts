import { LINE_FIELDS } from "../../kernel/request-row.ts";
import {
  type Database,
  insertRows,
  type Queryable,
  type SqlValue,
  selectIn,
  type Transaction,
} from "../../storage/contract.ts";
import { Batch, Sums } from "./batch.ts";
import {
  CACHE_COLUMNS,
  type KeySpend,
  type MonthKey,
  type MonthTotals,
  NO_TOTALS,
  type RequestRow,
  SUM_COLUMNS,
  WHOLE_USER,
} from "./rows.ts";

const FIELDS = [...LINE_FIELDS, "unpriced", "points", "accountType"] as const;
const NAMED_OTHERWISE: Partial<Record<string, string>> = {
  requestId: "id",
  atMs: "ended_ms",
  attribution: "api_key_id",
};
const COLUMNS = FIELDS.map(
  (field) => NAMED_OTHERWISE[field] ?? field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
);
const IF_LEFT_OUT: Partial<Record<string, SqlValue>> = {
  ...{ cachedTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0, cacheSavedNanoUsd: 0 },
  unpriced: false,
};

const valuesOf = (row: RequestRow): SqlValue[] =>
  FIELDS.map((field) => row[field] ?? IF_LEFT_OUT[field] ?? null);
export function columnsOf(row: RequestRow): Record<string, SqlValue> {
  const values = valuesOf(row);
  return Object.fromEntries(COLUMNS.map((column, i) => [column, values[i]!]));
}
const ROWS = `requests (${COLUMNS.join(", ")})`;

/** A table of sums by key: inserting a key that exists adds to its sums. */
function rollup(table: string, keys: readonly string[], sums: readonly string[]) {
  const added = sums.map((column) => `${column} = ${table}.${column} + excluded.${column}`);
  return {
    into: `${table} (${[...keys, ...sums].join(", ")})`,
    adding: `ON CONFLICT (${keys.join(", ")}) DO UPDATE SET ${added.join(", ")}`,
  };
}
const KINDS = rollup(
  "request_sums",
  ["grain_ms", "user_id", "start_ms", "surface", "model", "backend", "channel", "status", "code"],
  SUM_COLUMNS,
);
const FIGURES = ["prompt_tokens", "completion_tokens", "cost_nano_usd"];
const ASKER_DAYS = rollup(
  "request_asker_days",
  ["start_ms", "user_id", "api_key_id", "key_id", "project", "group_id", "channel"],
  ["requests", "charges_only", "unanswered", ...FIGURES, "unpriced", ...CACHE_COLUMNS],
);
const REF_DAYS = rollup(
  "request_ref_days",
  ["ref_id", "start_ms", "model", "channel"],
  ["requests", ...FIGURES, ...CACHE_COLUMNS],
);
const QUOTA_COLUMNS = ["quota_tokens", "quota_cost_nano_usd", "key_quota_tokens", "key_quota_cost_nano_usd"];
const MONTHS = rollup(
  "usage_months",
  ["user_id", "month", "project"],
  ["requests", "tokens", "cost_nano_usd", ...QUOTA_COLUMNS],
);
const SPEND = `key_id AS "keyId", month, month_cost_nano_usd AS "monthNanoUsd", total_cost_nano_usd AS "totalNanoUsd"`;
/** Rows of an earlier month, written late, add only to the total: the month that is limited is over. */
const KEYS = {
  into: "key_spend (key_id, month, month_cost_nano_usd, total_cost_nano_usd, requests, last_used_ms)",
  adding: `ON CONFLICT (key_id) DO UPDATE SET
  month_cost_nano_usd = CASE
    WHEN excluded.month = key_spend.month THEN key_spend.month_cost_nano_usd + excluded.month_cost_nano_usd
    WHEN excluded.month > key_spend.month THEN excluded.month_cost_nano_usd
    ELSE key_spend.month_cost_nano_usd END,
  month = CASE WHEN excluded.month > key_spend.month THEN excluded.month ELSE key_spend.month END,
  total_cost_nano_usd = key_spend.total_cost_nano_usd + excluded.total_cost_nano_usd,
  requests = key_spend.requests + excluded.requests,
  last_used_ms = CASE
    WHEN excluded.last_used_ms > key_spend.last_used_ms THEN excluded.last_used_ms ELSE key_spend.last_used_ms END
  RETURNING ${SPEND}`,
};

const QUOTA_SUMS = `quota_tokens AS "quotaTokens", quota_cost_nano_usd AS "quotaCostNanoUsd", key_quota_tokens AS "keyQuotaTokens",
  key_quota_cost_nano_usd AS "keyQuotaCostNanoUsd"`;
const QUOTA = `user_id AS "userId", month, project, ${QUOTA_SUMS}`;

/** The part of a month's sums that quotas limit. */
export interface MonthQuota
  extends MonthKey,
    Pick<MonthTotals, "quotaTokens" | "quotaCostNanoUsd" | "keyQuotaTokens" | "keyQuotaCostNanoUsd"> {}

type SumRows = readonly (readonly SqlValue[])[];

export interface WrittenSums {
  months: MonthQuota[];
  keys: KeySpend[];
}

const LATEST_ROWS = 2_000;

/** Writes requests and their sums in one transaction; reads the sums that limits and bills need. */
export class UsageStore {
  constructor(readonly db: Database) {}

  async existing(on: Queryable, ids: readonly string[]): Promise<Set<string>> {
    const rows = await selectIn<{ id: string }>(
      on,
      (list) => `SELECT id FROM requests WHERE id IN ${list}`,
      ids,
    );
    return new Set(rows.map(({ id }) => id));
  }

  /** Finished answers of at least `tokensMin` tokens among the latest requests, the oldest first. */
  async longAnswers(tokensMin: number): Promise<{ model: string; tokens: number; ms: number }[]> {
    const rows = await this.db.all<{ model: string; tokens: number; ms: number }>(
      `SELECT model, completion_tokens AS tokens, duration_ms AS ms FROM
         (SELECT model, completion_tokens, duration_ms, estimated, status, channel
          FROM requests ORDER BY ended_ms DESC LIMIT ${LATEST_ROWS}) AS latest
       WHERE completion_tokens >= $1 AND NOT estimated AND status = 200 AND channel IN ('gateway', 'rpc')`,
      [tokensMin],
    );
    return rows.reverse();
  }

  /** If another writer has inserted one of these rows, the unique id rolls the transaction back. */
  async insert(tx: Transaction, rows: readonly RequestRow[]): Promise<WrittenSums> {
    const { sums, ...written } = await this.insertExceptSums(tx, rows);
    await this.addSums(tx, sums);
    return written;
  }

  /** The sums by kind are returned, for `addSums` at the end of the transaction. */
  async insertExceptSums(
    tx: Transaction,
    rows: readonly RequestRow[],
  ): Promise<WrittenSums & { sums: SumRows }> {
    await insertRows(tx, ROWS, rows.map(valuesOf));
    const batch = new Batch(rows);
    const months = await this.#addToMonths(tx, batch.months.rows());
    const keys = await insertRows<KeySpend>(tx, KEYS.into, batch.keys.rows(), KEYS.adding);
    await insertRows(tx, REF_DAYS.into, batch.refDays.rows(), REF_DAYS.adding);
    await insertRows(tx, ASKER_DAYS.into, batch.askerDays.rows(), ASKER_DAYS.adding);
    return { months, keys, sums: batch.kinds.rows() };
  }

  /** Every instance updates the same few rows, so they are locked last and for the shortest time. */
  async addSums(tx: Transaction, sums: SumRows): Promise<void> {
    await insertRows(tx, KINDS.into, sums, KINDS.adding);
  }

  #addToMonths(tx: Transaction, rows: SumRows): Promise<MonthQuota[]> {
    return insertRows<MonthQuota>(tx, MONTHS.into, rows, `${MONTHS.adding} RETURNING ${QUOTA}`);
  }

  /** Locks the months' sums until the end of the transaction. Inserts missing rows, because a lock needs a row. */
  async lockMonths(tx: Transaction, keys: readonly MonthKey[]): Promise<MonthQuota[]> {
    const sums = new Sums();
    for (const { userId, month, project } of keys) sums.add([userId, month, project], [0, 0, 0, 0, 0, 0, 0]);
    if (tx.dialect === "postgres") return this.#addToMonths(tx, sums.rows());
    // SQLite runs one transaction at a time, so reading is enough.
    return this.months(tx, keys);
  }

  async months(on: Queryable, keys: readonly MonthKey[]): Promise<MonthQuota[]> {
    const byName = new Map(keys.map((key) => [`${key.userId} ${key.month} ${key.project}`, key]));
    const months: MonthQuota[] = [];
    for (const key of byName.values()) months.push({ ...(await this.month(key, on)), ...key });
    return months;
  }

  /** This month's quota pays a debt: it counts as use of the user and of the user's keys, not as a request. */
  async addDebt(
    tx: Transaction,
    { userId, month, costNanoUsd }: Omit<MonthKey, "project"> & { costNanoUsd: number },
  ): Promise<MonthQuota[]> {
    return this.#addToMonths(tx, [[userId, month, WHOLE_USER, 0, 0, 0, 0, costNanoUsd, 0, costNanoUsd]]);
  }

  async month({ userId, month, project }: MonthKey, on: Queryable = this.db): Promise<MonthTotals> {
    const row = await on.get<MonthTotals>(
      `SELECT requests, tokens, cost_nano_usd AS "costNanoUsd", ${QUOTA_SUMS} FROM usage_months
       WHERE user_id = $1 AND month = $2 AND project = $3`,
      [userId, month, project],
    );
    return row ?? NO_TOTALS;
  }

  async projects({ userId, month }: Omit<MonthKey, "project">, most: number): Promise<MonthQuota[]> {
    return this.db.all<MonthQuota>(
      `SELECT ${QUOTA} FROM usage_months WHERE user_id = $1 AND month = $2 AND project <> $3
       ORDER BY quota_cost_nano_usd DESC, quota_tokens DESC, project LIMIT ${most}`,
      [userId, month, WHOLE_USER],
    );
  }

  async keySpend(keyId: string, on: Queryable = this.db): Promise<KeySpend> {
    const row = await on.get<KeySpend>(`SELECT ${SPEND} FROM key_spend WHERE key_id = $1`, [keyId]);
    return row ?? { keyId, month: "", monthNanoUsd: 0, totalNanoUsd: 0 };
  }

  /** Deletes charged rows; their sums stay. */
  deleteBefore(beforeMs: number, rowsMax: number): Promise<number> {
    return this.db.run(
      `DELETE FROM requests WHERE id IN
         (SELECT id FROM requests WHERE ended_ms < $1 AND channel IS NOT NULL ORDER BY ended_ms LIMIT $2)`,
      [beforeMs, rowsMax],
    );
  }
}
