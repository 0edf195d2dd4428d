import { isoTime } from "../kernel/clock.ts";
import type { Database } from "./contract.ts";
import { migrations } from "./migrations/index.ts";

/** Column types that the two databases name differently; migrations write them as `{name}`. */
const TYPES = {
  sqlite: { timestamp: "TEXT", uuid: "TEXT", bigint: "INTEGER", double: "REAL", boolean: "INTEGER" },
  postgres: {
    timestamp: "TIMESTAMPTZ",
    uuid: "UUID",
    bigint: "BIGINT",
    double: "DOUBLE PRECISION",
    boolean: "BOOLEAN",
  },
} as const;

export interface Migration {
  /** Consecutive from 1; the order of application. */
  id: number;
  name: string;
  /** Statements in the common subset, with `{timestamp}`-style types, or what each database needs instead. */
  statements: readonly (string | Record<Database["dialect"], readonly string[]>)[];
}

const forDialect = (sql: string, dialect: Database["dialect"]) =>
  sql.replace(
    /\{(timestamp|uuid|bigint|double|boolean)\}/g,
    (_, type: keyof (typeof TYPES)["sqlite"]) => TYPES[dialect][type],
  );

/**
 * Brings the schema up to date. Runs in one transaction under a lock, so that two processes that start at
 * once take turns, and a failing migration leaves nothing behind.
 */
export async function migrate(db: Database, known: readonly Migration[] = migrations): Promise<void> {
  await db.transaction(async (tx) => {
    await tx.lock("schema_migrations");
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
    for (const { id, name, statements } of known) {
      if (done.has(id)) continue;
      for (const statement of statements) {
        const texts = typeof statement === "string" ? [statement] : statement[tx.dialect];
        for (const text of texts) await tx.run(forDialect(text, tx.dialect));
      }
      await tx.run("INSERT INTO schema_migrations (id, name, applied_at) VALUES ($1, $2, $3)", [
        id,
        name,
        isoTime(Date.now()),
      ]);
    }
  });
}
