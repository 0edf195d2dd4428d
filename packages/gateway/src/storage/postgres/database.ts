import { SQL } from "bun";
import type { Database, Queryable, Row, SqlValue, Transaction } from "../contract.ts";

const CONNECTIONS_MAX = 10;
const CONNECT_TIMEOUT_SECONDS = 5;

/** The driver's Date and bigint values become what the contract promises. */
function normalise<T>(rows: Iterable<Row>): T[] {
  const result: T[] = [];
  for (const row of rows) {
    for (const key in row) {
      const value = row[key];
      if (typeof value === "bigint") row[key] = Number(value);
      else if (value instanceof Date) row[key] = value.toISOString();
    }
    result.push(row as T);
  }
  return result;
}

type Unsafe = (sql: string, params: unknown[]) => Promise<Row[] & { count: number }>;

function queryable(unsafe: Unsafe): Queryable {
  const all = async <T>(sql: string, params: readonly SqlValue[] = []) =>
    normalise<T>(await unsafe(sql, [...params]));
  return {
    dialect: "postgres",
    all,
    get: async <T>(sql: string, params?: readonly SqlValue[]) => (await all<T>(sql, params))[0] ?? null,
    run: async (sql, params = []) => (await unsafe(sql, [...params])).count,
  };
}

export class PostgresDatabase implements Database {
  readonly dialect = "postgres";
  readonly #sql: SQL;
  readonly all: Queryable["all"];
  readonly get: Queryable["get"];
  readonly run: Queryable["run"];

  private constructor(sql: SQL) {
    this.#sql = sql;
    const direct = queryable((text, params) => sql.unsafe(text, params));
    this.all = direct.all;
    this.get = direct.get;
    this.run = direct.run;
  }

  static async open(url: string): Promise<PostgresDatabase> {
    const sql = new SQL(url, {
      max: CONNECTIONS_MAX,
      bigint: true,
      connectionTimeout: CONNECT_TIMEOUT_SECONDS,
    });
    await sql.unsafe("SELECT 1");
    return new PostgresDatabase(sql);
  }

  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    return this.#sql.begin((session) => {
      const inner = queryable((text, params) => session.unsafe(text, params));
      return work({
        ...inner,
        lock: async (name) => {
          await inner.get("SELECT pg_advisory_xact_lock(hashtextextended($1, 0)) AS locked", [name]);
        },
      });
    }) as Promise<T>;
  }

  async close(): Promise<void> {
    await this.#sql.close();
  }
}
