import { isoTime } from "../kernel/clock.ts";
import type { Database, Queryable, Transaction } from "./contract.ts";
import { migrations } from "./migrations/index.ts";

/** Column types that the two databases name differently; migrations write them as `{name}`. */
const TYPES = {
  sqlite: {
    timestamp: "TEXT",
    uuid: "TEXT",
    bigint: "INTEGER",
    double: "REAL",
    boolean: "INTEGER",
    bytes: "BLOB",
  },
  postgres: {
    timestamp: "TIMESTAMPTZ",
    uuid: "UUID",
    bigint: "BIGINT",
    double: "DOUBLE PRECISION",
    boolean: "BOOLEAN",
    bytes: "BYTEA",
  },
} as const;

export interface Migration {
  /** Rising; the order of application. */
  id: number;
  name: string;
  /** Statements in the common subset, with `{timestamp}`-style types, or what each database needs instead. */
  statements: readonly (string | Record<Database["dialect"], readonly string[]>)[];
  /** What SQL cannot do, after the statements and together with them. */
  work?: (tx: Transaction) => Promise<void>;
  /**
   * Indexes of tables that may have grown large. Postgres changes them while others read and write the table, which
   * it cannot do in a transaction: a migration has statements, or indexes, or what is of the next kind.
   */
  indexes?: {
    /** What each new one is on, by name. */
    create: Readonly<Record<string, string>>;
    drop: readonly string[];
  };
  /**
   * Work on a grown table that locks it only briefly, by database; none is needed where it is not named. It may have
   * been begun, or done, by an attempt that did not come to its end.
   */
  online?: Partial<Record<Database["dialect"], (db: Database) => Promise<void>>>;
}

const forDialect = (sql: string, dialect: Database["dialect"]) =>
  sql.replace(
    /\{(timestamp|uuid|bigint|double|boolean|bytes)\}/g,
    (_, type: keyof (typeof TYPES)["sqlite"]) => TYPES[dialect][type],
  );

/**
 * Brings the schema up to date. Runs under a lock, so that two processes that start at once take turns, and in
 * transactions, so that a failing migration leaves nothing behind; one of a grown table is begun again by the next start.
 */
export async function migrate(db: Database, known: readonly Migration[] = migrations): Promise<void> {
  let next = await applyStatements(db, known);
  while (next) {
    await applyOnline(db, next);
    next = await applyStatements(db, known);
  }
}

const SCHEMA_LOCK = "schema_migrations";
/** Another name: a transaction that waits for the first lock would keep Postgres from finishing an index. */
const INDEX_LOCK = "schema_indexes";

async function record(on: Queryable, { id, name }: Migration): Promise<void> {
  await on.run("INSERT INTO schema_migrations (id, name, applied_at) VALUES ($1, $2, $3)", [
    id,
    name,
    isoTime(Date.now()),
  ]);
}

/** Applies what is due up to the first migration of a grown table, which is returned; null when nothing is left. */
function applyStatements(db: Database, known: readonly Migration[]): Promise<Migration | null> {
  const apply = async (tx: Transaction) => {
    await tx.lock(SCHEMA_LOCK);
    await tx.run(
      forDialect(
        "CREATE TABLE IF NOT EXISTS schema_migrations (id INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at {timestamp} NOT NULL)",
        tx.dialect,
      ),
    );
    const applied = await tx.all<{ id: number }>("SELECT id FROM schema_migrations ORDER BY id");
    const newest = applied.at(-1)?.id ?? 0;
    const newestKnown = known.at(-1)?.id ?? 0;
    if (newest > newestKnown) {
      throw new Error(
        `the database was written by a newer version (schema ${newest}, this version knows ${newestKnown}): start that version, or restore a backup made before the upgrade`,
      );
    }
    const done = new Set(applied.map(({ id }) => id));
    for (const migration of known) {
      if (done.has(migration.id)) continue;
      if (migration.indexes || migration.online) return migration;
      for (const statement of migration.statements) {
        const texts = typeof statement === "string" ? [statement] : statement[tx.dialect];
        for (const text of texts) await tx.run(forDialect(text, tx.dialect));
      }
      await migration.work?.(tx);
      await record(tx, migration);
    }
    return null;
  };
  return db.transaction(apply, { isLarge: true });
}

/** Each step may have been done by an attempt that did not come to its end. */
function applyOnline(db: Database, migration: Migration): Promise<void> {
  return db.session(INDEX_LOCK, async (on) => {
    const applied = await on.get("SELECT id FROM schema_migrations WHERE id = $1", [migration.id]);
    if (applied) return;
    if (migration.indexes) await changeIndexes(on, migration.indexes);
    await migration.online?.[db.dialect]?.(db);
    await record(on, migration);
  });
}

async function changeIndexes(
  on: Queryable,
  { create, drop }: NonNullable<Migration["indexes"]>,
): Promise<void> {
  const online = on.dialect === "postgres" ? " CONCURRENTLY" : "";
  for (const [name, target] of Object.entries(create)) {
    // Postgres keeps what is left of an index that could not be finished, and does not use it.
    if (on.dialect === "postgres" && (await isInvalid(on, name)))
      await on.run(`DROP INDEX CONCURRENTLY IF EXISTS ${name}`);
    await on.run(`CREATE INDEX${online} IF NOT EXISTS ${name} ON ${target}`);
  }
  for (const name of drop) await on.run(`DROP INDEX${online} IF EXISTS ${name}`);
}

const isInvalid = (on: Queryable, name: string) =>
  on.get("SELECT 1 AS found FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid", [name]);
