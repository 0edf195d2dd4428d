/** Indexes of a table that has grown change while others use it. */
import { expect, test } from "bun:test";
import { emptyDatabase, onEachDatabase } from "@model-gateway/testing/databases.ts";
import type { Database } from "../../src/storage/contract.ts";
import { openDatabase, openStorage } from "../../src/storage/index.ts";
import { type Migration, migrate } from "../../src/storage/migrate.ts";
import { migrations } from "../../src/storage/migrations/index.ts";

const USAGE_INDEXES = 20;
const EXPECTED = ["usage_records_person", "usage_records_ref", "usage_records_time"];

async function indexesOf(db: Database): Promise<string[]> {
  const sql =
    db.dialect === "sqlite"
      ? "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'usage_records' AND sql IS NOT NULL"
      : `SELECT c.relname AS name FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE i.indrelid = 'usage_records'::regclass AND NOT i.indisprimary AND i.indisvalid`;
  return (await db.all<{ name: string }>(sql)).map(({ name }) => name).sort();
}

const addRow = (db: Database, n: number) =>
  db.run(
    `INSERT INTO usage_records (id, user_id, api_key_id, model, backend, prompt_tokens, completion_tokens, total_tokens,
       created_at, created_ms, estimated) VALUES ($1, $2, $3, 'm', 'gateway', 1, 1, 2, $4, $5, FALSE)`,
    [crypto.randomUUID(), crypto.randomUUID(), `key-${n}`, new Date(n).toISOString(), n],
  );

onEachDatabase("indexes of usage rows", (_, kind) => {
  test("are new in a new database and replaced in an old one, whose rows stay", async () => {
    const { options, drop } = await emptyDatabase(kind);
    const db = await openDatabase(options);
    await migrate(
      db,
      migrations.filter(({ id }) => id < USAGE_INDEXES),
    );
    expect(await indexesOf(db)).toContain("usage_records_api_key");
    for (let n = 0; n < 100; n++) await addRow(db, n);
    // Several instances of the new version start while one of the old version writes.
    let starting = true;
    const writing = (async () => {
      let written = 0;
      for (; starting; written++) await addRow(db, 1_000 + written);
      return written;
    })();
    const opened = await Promise.all(
      Array.from({ length: kind === "postgres" ? 3 : 1 }, () => openStorage(options)),
    );
    starting = false;
    const written = await writing;
    for (const each of opened) await each.close();
    expect(await indexesOf(db)).toEqual(EXPECTED);
    expect(await db.get("SELECT COUNT(*) AS n FROM usage_records")).toEqual({ n: 100 + written });
    const applied = await db.all<{ id: number }>("SELECT id FROM schema_migrations ORDER BY id");
    expect(applied.map(({ id }) => id)).toEqual(migrations.map(({ id }) => id));
    await db.close();
    await drop();
  });

  test("that an attempt did not finish are made by the next one", async () => {
    const { options, drop } = await emptyDatabase(kind);
    const db = await openDatabase(options);
    await migrate(
      db,
      migrations.filter(({ id }) => id < USAGE_INDEXES),
    );
    await addRow(db, 7);
    await addRow(db, 7);
    const known = migrations.find(({ id }) => id === USAGE_INDEXES)!;
    const before = migrations.filter(({ id }) => id < USAGE_INDEXES);
    const broken: Migration = {
      ...known,
      indexes: { create: { ...known.indexes!.create, nonsense: "no_such_table (x)" }, drop: [] },
    };
    await expect(migrate(db, [...before, broken])).rejects.toThrow();
    // Rows that are equal keep a unique index from being finished; Postgres leaves it behind, unusable.
    if (kind === "postgres") {
      await db.run("DROP INDEX usage_records_time");
      const unique = "CREATE UNIQUE INDEX CONCURRENTLY usage_records_time ON usage_records (created_ms)";
      await db.session("test", (on) => on.run(unique)).catch(() => {});
      expect(await indexesOf(db)).not.toContain("usage_records_time");
    }
    await migrate(db, [...before, known]);
    expect(await indexesOf(db)).toEqual(EXPECTED);
    await db.close();
    await drop();
  });
});
