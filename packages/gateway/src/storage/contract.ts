import { isoTime } from "../kernel/clock.ts";

/**
 * One contract for both databases. SQL is written once, with `$1` placeholders, in the common subset; `dialect` is for
 * the rare statement that must differ. Timestamps are RFC 3339 strings, 64-bit integers are numbers (within 2^53),
 * booleans may come back as 0/1 (wrap them in Boolean()), JSON is text.
 */
export type SqlValue = string | number | boolean | null | Uint8Array;
export type Row = Record<string, unknown>;

export interface Queryable {
  readonly dialect: "sqlite" | "postgres";
  all<T = Row>(sql: string, params?: readonly SqlValue[]): Promise<T[]>;
  get<T = Row>(sql: string, params?: readonly SqlValue[]): Promise<T | null>;
  run(sql: string, params?: readonly SqlValue[]): Promise<number>;
}

export interface Transaction extends Queryable {
  lock(name: string): Promise<void>;
}

export interface TransactionOptions {
  /** Does not wait for the disk: a power cut may undo the whole transaction, but not a killed process. */
  isUnsynced?: boolean;
}

export interface Database extends Queryable {
  /** `all` for a SELECT that may read very many rows: on SQLite in a thread. */
  report<T = Row>(sql: string, params?: readonly SqlValue[]): Promise<T[]>;
  /** A throw rolls everything back. SQLite runs one transaction at a time. */
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>;
  /** Runs `work`, during which another connection writes: on SQLite, writes of this process wait for its end. */
  lendWrites<T>(work: () => Promise<T>): Promise<T>;
  /** Checkpoints SQLite's WAL, which takes a while: for threads that serve no requests. */
  checkpoint(): Promise<void>;
  close(): Promise<void>;
}

/** For work that one instance at a time does. The lease of a dead holder expires. */
export interface Leases {
  /** Takes or extends the lease; false while another instance has it. */
  acquire(name: string, durationMs: number): Promise<boolean>;
  /** Gives up this instance's lease, so that others need not wait for it to expire. */
  release(name: string): Promise<unknown>;
}

/** The conditions of a statement, and its values in placeholder order. Parts of one statement share `params`. */
export class Conditions {
  readonly #texts: string[] = [];

  constructor(readonly params: SqlValue[] = []) {}

  value(value: SqlValue): string {
    return `$${this.params.push(value)}`;
  }
  add(condition: string): this {
    this.#texts.push(condition);
    return this;
  }
  has(column: string, value: SqlValue | undefined): this {
    return value === undefined || value === null ? this : this.add(`${column} = ${this.value(value)}`);
  }
  within(column: string, { fromMs, belowMs }: { fromMs: number; belowMs: number }): this {
    return this.add(`${column} >= ${this.value(fromMs)}`).add(`${column} < ${this.value(belowMs)}`);
  }
  get where(): string {
    return this.#texts.length === 0 ? "" : `WHERE ${this.#texts.join(" AND ")}`;
  }
}

/** Removes up to `rowsMax` rows that are no longer needed; returns how many. */
export type Sweep = (nowMs: number, rowsMax: number) => Promise<number>;

/** Rows per statement: few sizes, so that there are few statement texts. */
const CHUNK_SIZES = [64, 16, 4, 2, 1] as const;

function* chunks<T>(items: readonly T[]): Generator<readonly T[]> {
  let start = 0;
  for (const size of CHUNK_SIZES) {
    for (; items.length - start >= size; start += size) yield items.slice(start, start + size);
  }
}

function valueList(rowCount: number, columnCount: number): string {
  let number = 0;
  const row = () => `(${Array.from({ length: columnCount }, () => `$${++number}`).join(", ")})`;
  return Array.from({ length: rowCount }, row).join(", ");
}

/** By number of rows, table and suffix. The texts are few, and long to build. */
const insertTexts = new Map<string, string>();

const insertText = (into: string, suffix: string, { rows, columns }: { rows: number; columns: number }) =>
  insertTexts.getOrInsertComputed(
    `${rows} ${into} ${suffix}`,
    () => `INSERT INTO ${into} VALUES ${valueList(rows, columns)} ${suffix}`,
  );

/** Inserts many rows with few statements. `into` is like `table (a, b)`; `suffix` may return rows. */
export async function insertRows<T = Row>(
  on: Queryable,
  into: string,
  rows: readonly (readonly SqlValue[])[],
  suffix = "",
): Promise<T[]> {
  const returned: T[] = [];
  const values: SqlValue[] = [];
  for (const chunk of chunks(rows)) {
    const text = insertText(into, suffix, { rows: chunk.length, columns: chunk[0]!.length });
    values.length = 0;
    for (const row of chunk) for (const value of row) values.push(value);
    returned.push(...(await on.all<T>(text, values)));
  }
  return returned;
}

/** The same for objects whose members are the columns. */
export async function insertAll<R extends { readonly [K in keyof R]: SqlValue }>(
  on: Queryable,
  table: string,
  rows: readonly R[],
  suffix = "",
): Promise<void> {
  const columns = Object.keys(rows[0] ?? {}) as (keyof R & string)[];
  const values = rows.map((row) => columns.map((column) => row[column]));
  await insertRows(on, `${table} (${columns.join(", ")})`, values, suffix);
}

/** Inserts a row whose members are the columns. False if `suffix`, an ON CONFLICT clause, prevented it. */
export async function insertRow<R extends { readonly [K in keyof R]: SqlValue }>(
  on: Queryable,
  table: string,
  row: R,
  suffix = "",
): Promise<boolean> {
  const columns = Object.keys(row);
  const text = insertText(`${table} (${columns.join(", ")})`, suffix, { rows: 1, columns: columns.length });
  return (await on.run(text, Object.values(row))) > 0;
}

/** Inserts the row, or updates the one with that key, except for the `kept` columns. */
export async function upsertRow<R extends { readonly [K in keyof R]: SqlValue }>(
  on: Queryable,
  table: string,
  row: R,
  { key, kept = [] }: { key: string; kept?: readonly (keyof R)[] },
): Promise<void> {
  const set = (Object.keys(row) as (keyof R & string)[]).filter((name) => !kept.includes(name));
  const values = set.map((name) => `${name} = excluded.${name}`).join(", ");
  await insertRow(on, table, row, `ON CONFLICT (${key}) DO UPDATE SET ${values}`);
}

/** Updates the rows with this key, except columns that are undefined; returns how many rows there are. */
export async function updateRows(
  on: Queryable,
  table: string,
  key: Readonly<Record<string, SqlValue>>,
  changes: { readonly [column: string]: SqlValue | undefined },
): Promise<number> {
  const sql = new Conditions();
  const set = Object.entries(changes).flatMap(([column, value]) =>
    value === undefined ? [] : `${column} = ${sql.value(value)}`,
  );
  for (const [column, value] of Object.entries(key)) sql.add(`${column} = ${sql.value(value)}`);
  if (set.length === 0) return countRows(on, `${table} ${sql.where}`, sql.params);
  return on.run(`UPDATE ${table} SET ${set.join(", ")} ${sql.where}`, sql.params);
}

export async function countRows(
  on: Queryable,
  from: string,
  params: readonly SqlValue[] = [],
): Promise<number> {
  return (await on.get<{ n: number }>(`SELECT COUNT(*) AS n FROM ${from}`, params))!.n;
}

export const deleteExpired = (
  on: Queryable,
  { table, key = "id" }: { table: string; key?: string },
  ...[nowMs, rowsMax]: Parameters<Sweep>
): Promise<number> =>
  on.run(
    `DELETE FROM ${table} WHERE ${key} IN
       (SELECT ${key} FROM ${table} WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`,
    [isoTime(nowMs), rowsMax],
  );

/** The rows of `sql(list)` for all `values`, which are queried in chunks: `x IN ${list}`. */
export async function selectIn<T>(
  on: Queryable,
  sql: (list: string) => string,
  values: readonly SqlValue[],
): Promise<T[]> {
  const found: T[] = [];
  for (const chunk of chunks(values)) {
    const list = `(${chunk.map((_, index) => `$${index + 1}`).join(", ")})`;
    found.push(...(await on.all<T>(sql(list), chunk)));
  }
  return found;
}
