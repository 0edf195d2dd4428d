import { isoTime } from "../kernel/clock.ts";

/**
 * One contract for both databases. SQL is written once, with `$1` placeholders, in the common subset;
 * `dialect` is for the rare statement that must differ.
 *
 * Values are the same on both: timestamps are RFC 3339 strings, 64-bit integers are numbers (they must stay
 * within 2^53), booleans may come back as 0/1 (wrap them in Boolean()), JSON is text.
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
  /** Until the end of the transaction, no other transaction holds the lock of this name. */
  lock(name: string): Promise<void>;
}

export interface TransactionOptions {
  /** Does not wait for the disk: a power cut may undo the whole transaction. A killed process loses nothing. */
  isUnsynced?: boolean;
}

export interface Database extends Queryable {
  /** `all` for a SELECT that may read very many rows: nobody waits meanwhile. */
  report<T = Row>(sql: string, params?: readonly SqlValue[]): Promise<T[]>;
  /** Runs `work` in one transaction; a throw rolls everything back. SQLite runs one at a time. */
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>;
  /** Runs `work`, during which another connection writes; SQLite's writes here and there wait for each other. */
  lendWrites<T>(work: () => Promise<T>): Promise<T>;
  /** Upkeep that takes a while: for a thread that serves no requests. SQLite moves its log into the database file. */
  checkpoint(): Promise<void>;
  close(): Promise<void>;
}

/** Leases for work that one instance at a time does. A dead holder's lease expires. */
export interface Leases {
  /** Takes the lease, or holds it longer; false while another instance has it. */
  acquire(name: string, durationMs: number): Promise<boolean>;
  /** Gives one's own back, so that others need not wait for it to expire. */
  release(name: string): Promise<unknown>;
}

/** Conditions of one statement, and its values in placeholder order. Parts of one statement share their values. */
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
  /** Unless there is nothing to compare with. */
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

/** One bounded step of removing what is no longer needed; returns how many rows it took. */
export type Sweep = (nowMs: number, rowsMax: number) => Promise<number>;

/** Sizes in which many rows are sent at once: few, so that few statement texts exist. */
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

/** Texts of inserts by how many rows, what they insert into and what follows: few, and long. */
const insertTexts = new Map<string, string>();

function insertText(into: string, suffix: string, { rows, columns }: { rows: number; columns: number }) {
  const name = `${rows} ${into} ${suffix}`;
  const known = insertTexts.get(name) ?? `INSERT INTO ${into} VALUES ${valueList(rows, columns)} ${suffix}`;
  insertTexts.set(name, known);
  return known;
}

/** Inserts many rows with few statements. `into` reads like `table (a, b)`; `suffix` may return rows. */
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

/** The same for rows whose members are the columns. */
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

/** Inserts a row whose members are the columns. False when `suffix`, an ON CONFLICT clause, kept it out. */
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

/** The same, or brings the row of that key up to date; what is `kept` stays as it was first. */
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

/** Sets these columns of the rows that have this key, but for undefined ones; returns how many rows there are. */
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

/** Deletes some of the rows whose `expires_at` has passed, the oldest first. */
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

/** The rows of `sql(list)` for all `values`, where `list` stands for some of them: `x IN ${list}`. */
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
