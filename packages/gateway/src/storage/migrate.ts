import { isoTime } from "../kernel/clock.ts";
import { type Database, insertRow } from "./contract.ts";
import { migrations } from "./migrations/index.ts";

/** What the databases call differently; migrations write `{name}`. `by_key`: rows are stored in the order of their key. */
const TYPES: Record<string, Record<Database["dialect"], string>> = {
  timestamp: { sqlite: "TEXT", postgres: "TIMESTAMPTZ" },
  uuid: { sqlite: "TEXT", postgres: "UUID" },
  bigint: { sqlite: "INTEGER", postgres: "BIGINT" },
  double: { sqlite: "REAL", postgres: "DOUBLE PRECISION" },
  boolean: { sqlite: "INTEGER", postgres: "BOOLEAN" },
  bytes: { sqlite: "BLOB", postgres: "BYTEA" },
  by_key: { sqlite: "WITHOUT ROWID", postgres: "" },
};

/** SQL in the common subset, with types like `{timestamp}`, or separate statements for each database. */
export type Statement = string | Record<Database["dialect"], readonly string[]>;

export interface Migration {
  id: number;
  name: string;
  statements: readonly Statement[];
}

const forDialect = (sql: string, dialect: Database["dialect"]) =>
  sql.replace(/\{(\w+)\}/g, (text, type: string) => TYPES[type]?.[dialect] ?? text);

const SCHEMA_LOCK = "schema_migrations";

export function migrate(db: Database, known: readonly Migration[] = migrations): Promise<void> {
  return db.transaction(async (tx) => {
    await tx.lock(SCHEMA_LOCK);
    await tx.run(
      forDialect(
        "CREATE TABLE IF NOT EXISTS schema_migrations (id INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at {timestamp} NOT NULL)",
        tx.dialect,
      ),
    );
    const applied = await tx.all<{ id: number }>("SELECT id FROM schema_migrations ORDER BY id");
    const done = applied.map(({ id }) => id);
    refuseUnknown(done, known);
    for (const { id, name, statements } of known) {
      if (done.includes(id)) continue;
      for (const statement of statements) {
        const texts = typeof statement === "string" ? [statement] : statement[tx.dialect];
        for (const text of texts) await tx.run(forDialect(text, tx.dialect));
      }
      await insertRow(tx, "schema_migrations", { id, name, applied_at: isoTime(Date.now()) });
    }
  });
}

function refuseUnknown(applied: readonly number[], known: readonly Migration[]): void {
  const [oldest = 0, newest = 0] = [applied[0], applied.at(-1)];
  const [oldestKnown = 0, newestKnown = 0] = [known[0]?.id, known.at(-1)?.id];
  if (newest > newestKnown)
    throw new Error(
      `the database was written by a newer version (schema ${newest}, this version knows ${newestKnown}): start that version, or restore a backup made before the upgrade`,
    );
  if (oldest > 0 && oldest < oldestKnown)
    throw new Error(
      `the database was written before the first release (schema ${newest}), and its tables cannot be taken over: start with an empty SERVICE_DATA_DIR or SERVICE_DATABASE_URL, or keep running the version that wrote it`,
    );
}
