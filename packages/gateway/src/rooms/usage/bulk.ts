import type { Queryable, Row, SqlValue } from "../../storage/contract.ts";

/** Rows a statement: few sizes, so that each is prepared once and used again. */
const CHUNK_SIZES = [64, 16, 4, 1] as const;

export interface BulkInsert {
  /** Up to and without VALUES, e.g. `INSERT INTO t (a, b)`. */
  insert: string;
  columnCount: number;
  /** What follows the values, e.g. an ON CONFLICT clause. */
  suffix?: string;
}

const statements = new Map<string, string>();

function statement({ insert, columnCount, suffix = "" }: BulkInsert, rowCount: number): string {
  const key = `${rowCount} ${insert}`;
  let sql = statements.get(key);
  if (sql === undefined) {
    const row = (r: number) =>
      `(${Array.from({ length: columnCount }, (_, c) => `$${r * columnCount + c + 1}`).join(", ")})`;
    sql = `${insert} VALUES ${Array.from({ length: rowCount }, (_, r) => row(r)).join(", ")} ${suffix}`;
    statements.set(key, sql);
  }
  return sql;
}

/** Inserts many rows in few statements; returns what a RETURNING clause gave. */
export async function bulkInsert<T = Row>(
  on: Queryable,
  into: BulkInsert,
  rows: readonly (readonly SqlValue[])[],
): Promise<T[]> {
  const returned: T[] = [];
  let at = 0;
  for (const size of CHUNK_SIZES) {
    for (; rows.length - at >= size; at += size) {
      const params = rows.slice(at, at + size).flat();
      returned.push(...(await on.all<T>(statement(into, size), params)));
    }
  }
  return returned;
}

/** `IN` lists come in few lengths too: the last value is repeated up to the next power of two. */
export function padded<T>(values: readonly T[]): T[] {
  const length = 2 ** Math.ceil(Math.log2(Math.max(1, values.length)));
  return [...values, ...Array.from({ length: length - values.length }, () => values.at(-1)!)];
}
