import { Database as Sqlite } from "bun:sqlite";
import type { Database, Row, SqlValue, Transaction, TransactionOptions } from "../contract.ts";
import { namingOutages } from "../outage.ts";
import { ReportThread } from "./reports.ts";

/** How long a statement waits for another process's lock before it fails. */
const LOCK_WAIT_MS = 10_000;
/** Tried again after a random part of it: of several that wait, none is always the last. */
const LOCK_RETRY_MS = 10;

/** A commit that leaves the log longer moves it into the database file, which takes a moment. */
const LOG_PAGES_MAX = 1_000;
/** The same where another thread sees to the log before that. */
const LOG_PAGES_ATTENDED_MAX = 32_768;

/** Every statement of the service stays compiled; the default of 20 would compile the frequent ones again and again. */
Sqlite.MAX_QUERY_CACHE_SIZE = 500;

const numbered = new Map<string, string>();

/** `$1` to `?1`: SQLite binds the latter by position. Statements are few, so the cache is small. */
function toSqlite(sql: string): string {
  let text = numbered.get(sql);
  if (text === undefined) {
    text = sql.replace(/\$(\d+)/g, "?$1");
    numbered.set(sql, text);
  }
  return text;
}

const isRead = (sql: string) => /^\s*select\b/i.test(sql);

const isBusy = (error: unknown): boolean => {
  const code = (error as { code?: string } | null)?.code;
  return code !== undefined && /^SQLITE_(BUSY|LOCKED)/.test(code);
};

/** SQLite's own busy timeout would block the event loop, so a locked database is waited for between attempts. */
async function whenUnlocked<T>(attempt: () => T): Promise<T> {
  const deadline = Date.now() + LOCK_WAIT_MS;
  for (;;) {
    try {
      return attempt();
    } catch (error) {
      if (!isBusy(error) || Date.now() > deadline) throw error;
      await Bun.sleep(LOCK_RETRY_MS * Math.random());
    }
  }
}

/** A statement as it takes all its values in one array: as arguments, a thousand of them would be copied twice. */
interface Prepared {
  all(values: readonly SqlValue[]): unknown[];
  get(values: readonly SqlValue[]): unknown;
  run(values: readonly SqlValue[]): { changes: number };
}

export class Connection implements Transaction {
  readonly dialect = "sqlite";
  constructor(readonly handle: Sqlite) {}

  #prepared(sql: string): Prepared {
    return this.handle.query(toSqlite(sql)) as unknown as Prepared;
  }

  async all<T = Row>(sql: string, params: readonly SqlValue[] = []): Promise<T[]> {
    return whenUnlocked(() => this.#prepared(sql).all(params) as T[]);
  }
  async get<T = Row>(sql: string, params: readonly SqlValue[] = []): Promise<T | null> {
    return whenUnlocked(() => this.#prepared(sql).get(params) as T | null);
  }
  async run(sql: string, params: readonly SqlValue[] = []): Promise<number> {
    return whenUnlocked(() => this.#prepared(sql).run(params).changes);
  }
  /** Transactions are exclusive here anyway. */
  async lock(): Promise<void> {}
}

function open(path: string): Connection {
  const handle = new Sqlite(path, { create: true, strict: true });
  handle.run("PRAGMA busy_timeout = 0");
  handle.run("PRAGMA foreign_keys = ON");
  return new Connection(handle);
}

export function openReader(path: string): Connection {
  const reader = open(path);
  reader.handle.run("PRAGMA query_only = ON");
  return reader;
}

interface SqliteOptions {
  /** Whether its owner calls `checkpoint` often enough, so that a commit need not. */
  isAttended?: boolean;
}

/** One writer whose transactions run one after the other, one reader that never waits for it, a thread for long reads. */
export class SqliteDatabase implements Database {
  readonly dialect = "sqlite";
  readonly #writer: Connection;
  readonly #reader: Connection;
  readonly #reports: ReportThread;
  #lastWrite: Promise<void> = Promise.resolve();
  #logPagesMax = 0;

  private constructor(writer: Connection, reader: Connection, reports: ReportThread) {
    this.#writer = writer;
    this.#reader = reader;
    this.#reports = reports;
  }

  static async open(path: string, { isAttended = false }: SqliteOptions = {}): Promise<SqliteDatabase> {
    const writer = open(path);
    await whenUnlocked(() => writer.handle.run("PRAGMA journal_mode = WAL"));
    // Money is committed here, so a commit must survive a power cut too.
    writer.handle.run("PRAGMA synchronous = FULL");
    // Pages that a large transaction changes are written once, at its end.
    writer.handle.run("PRAGMA cache_spill = OFF");
    // A statement that changes many rows copies each page before that, in case it has to be undone: to a file unless
    // told otherwise.
    if (isAttended) writer.handle.run("PRAGMA temp_store = MEMORY");
    const db = new SqliteDatabase(writer, openReader(path), new ReportThread(path));
    db.#allowLog(isAttended ? LOG_PAGES_ATTENDED_MAX : LOG_PAGES_MAX);
    return db;
  }

  #allowLog(pagesMax: number): void {
    if (this.#logPagesMax === pagesMax) return;
    this.#logPagesMax = pagesMax;
    this.#writer.handle.run(`PRAGMA wal_autocheckpoint = ${pagesMax}`);
  }

  /** Queues `work` behind earlier writes. The next waits for its own promise, or results stay alive until a full GC. */
  async #exclusively<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#lastWrite;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#lastWrite = promise;
    await before;
    try {
      return await work();
    } finally {
      resolve();
    }
  }

  all<T = Row>(sql: string, params?: readonly SqlValue[]): Promise<T[]> {
    if (isRead(sql)) return namingOutages(() => this.#reader.all(sql, params));
    return this.#exclusively(() => namingOutages(() => this.#writer.all(sql, params)));
  }
  get<T = Row>(sql: string, params?: readonly SqlValue[]): Promise<T | null> {
    if (isRead(sql)) return namingOutages(() => this.#reader.get(sql, params));
    return this.#exclusively(() => namingOutages(() => this.#writer.get(sql, params)));
  }
  run(sql: string, params?: readonly SqlValue[]): Promise<number> {
    return this.#exclusively(() => namingOutages(() => this.#writer.run(sql, params)));
  }
  report<T = Row>(sql: string, params?: readonly SqlValue[]): Promise<T[]> {
    return namingOutages(() => this.#reports.all(sql, params) as Promise<T[]>);
  }

  transaction<T>(
    work: (tx: Transaction) => Promise<T>,
    { isUnsynced = false }: TransactionOptions = {},
  ): Promise<T> {
    const writer = this.#writer;
    const committed = async () => {
      await writer.run("BEGIN IMMEDIATE");
      try {
        // An object for each transaction: callers keep what it changed by it.
        const result = await work(new Connection(writer.handle));
        await writer.run("COMMIT");
        return result;
      } catch (error) {
        if (writer.handle.inTransaction) writer.handle.run("ROLLBACK");
        throw error;
      }
    };
    // It cannot change within a transaction.
    const within = async () => {
      if (isUnsynced) writer.handle.run("PRAGMA synchronous = NORMAL");
      try {
        return await committed();
      } finally {
        if (isUnsynced) writer.handle.run("PRAGMA synchronous = FULL");
      }
    };
    return this.#exclusively(() => namingOutages(within));
  }

  lendWrites<T>(work: () => Promise<T>): Promise<T> {
    return this.#exclusively(() => {
      this.#allowLog(LOG_PAGES_ATTENDED_MAX);
      return work();
    });
  }

  async checkpoint(): Promise<void> {
    // Passive: what readers still need stays in the log for the next time.
    this.#writer.handle.query("PRAGMA wal_checkpoint(PASSIVE)").all();
  }

  async close(): Promise<void> {
    await this.#lastWrite;
    this.#reports.close();
    this.#reader.handle.close();
    this.#writer.handle.close();
  }
}
