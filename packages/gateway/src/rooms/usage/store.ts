import { isoTime } from "../../kernel/clock.ts";
import {
  type Database,
  insertRows,
  type Queryable,
  type SqlValue,
  selectIn,
  type Transaction,
} from "../../storage/contract.ts";
import { KeySums, readKeySpend } from "./key-spend.ts";
import {
  type KeySpend,
  type MonthKey,
  type MonthTotals,
  NANO_PER_USD,
  type UsageRow,
  WHOLE_USER,
} from "./rows.ts";

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

type KeyPart = string | boolean;

interface Sum {
  key: readonly KeyPart[];
  values: number[];
}

/** Sums by key. Keys are found part by part: the parts recur, a text made of them would be new each time. */
class Sums {
  readonly #root = new Map<KeyPart, unknown>();
  readonly #sums: Sum[] = [];

  add(key: readonly KeyPart[], values: readonly number[]): void {
    let level = this.#root;
    const last = key.length - 1;
    for (let i = 0; i < last; i++) {
      let next = level.get(key[i]!) as Map<KeyPart, unknown> | undefined;
      if (!next) {
        next = new Map();
        level.set(key[i]!, next);
      }
      level = next;
    }
    const sum = level.get(key[last]!) as Sum | undefined;
    if (!sum) {
      const first = { key, values: [...values] };
      level.set(key[last]!, first);
      this.#sums.push(first);
    } else for (let i = 0; i < values.length; i++) sum.values[i]! += values[i]!;
  }

  get isEmpty(): boolean {
    return this.#sums.length === 0;
  }

  /** Rows of key and sums, in the order of the keys: two writers then lock rows in the same order. */
  rows(): (readonly (KeyPart | number)[])[] {
    return this.#sums
      .map(({ key, values }) => ({ id: key.join("\u0000"), row: [...key, ...values] }))
      .sort((a, b) => (a.id < b.id ? -1 : 1))
      .map(({ row }) => row);
  }
}

/** The rollups' parts of a batch. */
interface Rollups {
  months: Sums;
  days: Sums;
  refDays: Sums;
  keyDays: Sums;
  keys: KeySums;
}

const totalTokens = (row: UsageRow) => row.promptTokens + row.completionTokens;

/** Counts the row in every rollup; month and day are parts of its time, which is cheaper than formatting a date. */
function rollUp(
  { months, days, refDays, keyDays, keys }: Rollups,
  row: UsageRow,
  { month, day }: Stamp,
): void {
  const tokens = totalTokens(row);
  const cost = row.costNanoUsd ?? 0;
  const ofQuota = row.points === null ? 1 : 0;
  // Only what is done with a key has a project.
  const ofKeys = row.project === null ? 0 : ofQuota;
  const monthValues = [1, tokens, cost, ofQuota * tokens, ofQuota * cost, ofKeys * tokens, ofKeys * cost];
  months.add([row.userId, month, WHOLE_USER], monthValues);
  if (row.project !== null) months.add([row.userId, month, row.project], monthValues);
  const dayValues = [1, row.promptTokens, row.completionTokens, tokens, cost];
  days.add([day, row.model, row.backend, row.refId !== null], dayValues);
  if (row.refId !== null) refDays.add([row.refId, day, row.model, row.backend], dayValues);
  keyDays.add(
    [day, row.apiKeyId, row.project ?? WHOLE_USER, row.userId],
    [1, row.promptTokens, row.completionTokens, cost, row.costNanoUsd === null ? 1 : 0],
  );
  if (row.keyId !== null) keys.add(row.keyId, { month, nanoUsd: cost, atMs: row.createdAtMs });
}

/** An instant as text, with its month and day. */
interface Stamp {
  ms: number;
  text: string;
  month: string;
  day: string;
}

/** The stamp of `ms`; what it has in common with the one before is taken from there. */
function stampOf(ms: number, before: Stamp | null): Stamp {
  if (before?.ms === ms) return before;
  const text = isoTime(ms);
  if (before && text.startsWith(before.day)) return { ...before, ms, text };
  return { ms, text, month: text.slice(0, 7), day: text.slice(0, 10) };
}

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
  totalTokens(row),
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

  /** Counts a transaction that settles; returns how many all instances have begun. SQLite has one instance only. */
  async countSettlement(tx: Transaction): Promise<number | null> {
    if (tx.dialect === "sqlite") return null;
    return (await tx.get<{ count: number }>("SELECT nextval('usage_settlements') AS count"))!.count;
  }

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
    const rollups: Rollups = {
      months: new Sums(),
      days: new Sums(),
      refDays: new Sums(),
      keyDays: new Sums(),
      keys: new KeySums(),
    };
    let stamp: Stamp | null = null;
    const values: SqlValue[][] = [];
    for (const row of rows) {
      stamp = stampOf(row.createdAtMs, stamp);
      values.push(toValues(row, stamp.text));
      rollUp(rollups, row, stamp);
    }
    await insertRows(tx, ROWS, values);
    const months = await this.#addToMonths(tx, rollups.months.rows());
    const keys = await rollups.keys.write(tx);
    if (!rollups.refDays.isEmpty)
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
