import { SQL } from "bun";
import type { Database, Queryable, Row, SqlValue, Transaction, TransactionOptions } from "../contract.ts";
import { namingOutages } from "../outage.ts";
import { ServerWatch } from "./watch.ts";

const CONNECTIONS_MAX = 10;
const CONNECT_TIMEOUT_SECONDS = 5;
/** Before firewalls and load balancers silently drop an idle connection. */
const IDLE_CONNECTION_SECONDS = 240;
/** Far more than the service needs between two statements of a transaction. */
const IDLE_TRANSACTION_MS = 60_000;

/** Converts the driver's Date and bigint values to those of the contract. */
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

function connect(url: string, connectionsMax: number): SQL {
  return new SQL(url, {
    max: connectionsMax,
    bigint: true,
    connectionTimeout: CONNECT_TIMEOUT_SECONDS,
    idleTimeout: IDLE_CONNECTION_SECONDS,
  });
}

interface PostgresOptions {
  idleTransactionMs?: number;
  connectionsMax?: number;
}

export class PostgresDatabase implements Database {
  readonly dialect = "postgres";
  readonly #watch: ServerWatch;
  readonly #idleTransactionMs: number;
  #sql: SQL;
  readonly all: Queryable["all"];
  readonly get: Queryable["get"];
  readonly run: Queryable["run"];
  readonly report: Queryable["all"];

  private constructor(
    url: string,
    { idleTransactionMs = IDLE_TRANSACTION_MS, connectionsMax = CONNECTIONS_MAX }: PostgresOptions,
  ) {
    this.#sql = connect(url, connectionsMax);
    this.#idleTransactionMs = idleTransactionMs;
    this.#watch = new ServerWatch(url, () => {
      const silent = this.#sql;
      this.#sql = connect(url, connectionsMax);
      // Fails everything that waits for the server; unsent queries are dropped.
      void silent.close({ timeout: 0 }).catch(() => {});
    });
    const direct = queryable((text, params) => this.#guarded(() => this.#sql.unsafe(text, params)));
    this.all = direct.all;
    this.get = direct.get;
    this.run = direct.run;
    this.report = direct.all;
  }

  static async open(url: string, options: PostgresOptions = {}): Promise<PostgresDatabase> {
    const db = new PostgresDatabase(url, options);
    try {
      await db.get("SELECT 1");
      return db;
    } catch (error) {
      await db.close();
      throw error;
    }
  }

  transaction<T>(
    work: (tx: Transaction) => Promise<T>,
    { isUnsynced = false }: TransactionOptions = {},
  ): Promise<T> {
    const begun = () =>
      this.#sql.begin(async (session) => {
        // A machine that dies in a transaction does not disconnect, and others would wait for its locks.
        await session.unsafe(`SET LOCAL idle_in_transaction_session_timeout = ${this.#idleTransactionMs}`);
        if (isUnsynced) await session.unsafe("SET LOCAL synchronous_commit = off");
        const inner = queryable((text, params) => session.unsafe(text, params));
        return work({
          ...inner,
          lock: async (name) => {
            await inner.get("SELECT pg_advisory_xact_lock(hashtextextended($1, 0)) AS locked", [name]);
          },
        });
      }) as Promise<T>;
    return this.#guarded(begun);
  }

  /** Connections of Postgres do not block each other. */
  lendWrites<T>(work: () => Promise<T>): Promise<T> {
    return work();
  }

  async checkpoint(): Promise<void> {}

  #guarded<T>(work: () => Promise<T>): Promise<T> {
    return namingOutages(() => this.#watch.during(work));
  }

  async close(): Promise<void> {
    this.#watch.close();
    await this.#sql.close();
  }
}
