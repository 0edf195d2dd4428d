import { Database as Sqlite } from "bun:sqlite";
import { expect, test } from "bun:test";
import { join } from "node:path";
import {
  emptyDatabase,
  onEachDatabase,
  openDatabase,
  openStorage,
  withDatabase,
} from "@model-gateway/testing/databases.ts";
import { Outage } from "../../src/kernel/errors.ts";
import { SQLITE_FILE } from "../../src/storage/index.ts";
import { type Migration, migrate } from "../../src/storage/migrate.ts";
import { migrations } from "../../src/storage/migrations/index.ts";

const numbers: Migration = {
  id: 1,
  name: "numbers",
  statements: [
    "CREATE TABLE numbers (n {bigint} PRIMARY KEY, flag {boolean}, at {timestamp}, x {double}, word TEXT)",
  ],
};

onEachDatabase("storage", (fresh, kind) => {
  test("values come back as the contract says", () =>
    withDatabase(fresh, async (db) => {
      await migrate(db, [...migrations, { ...numbers, id: 10_000 }]);
      const at = "2026-11-15T12:00:00.123Z";
      await db.run("INSERT INTO numbers (n, flag, at, x, word) VALUES ($1, $2, $3, $4, $5)", [
        2 ** 53 - 1,
        true,
        at,
        0.1,
        "é",
      ]);
      await db.run("INSERT INTO numbers (n, flag, at, x, word) VALUES ($1, $2, $3, $4, $5)", [
        1,
        false,
        null,
        null,
        null,
      ]);
      const row = await db.get<{ n: number; flag: boolean; at: string; x: number; word: string }>(
        "SELECT * FROM numbers WHERE flag AND at <= $1",
        [at],
      );
      expect({ ...row, flag: Boolean(row?.flag) }).toEqual({
        n: 2 ** 53 - 1,
        flag: true,
        at,
        x: 0.1,
        word: "é",
      });
      // A placeholder may be used twice and out of order.
      const found = await db.all("SELECT n FROM numbers WHERE n < $2 AND (n > $1 OR n = $1)", [1, 5]);
      expect(found).toEqual([{ n: 1 }]);
      expect(await db.run("UPDATE numbers SET x = 1")).toBe(2);
      expect(await db.get("SELECT n FROM numbers WHERE n = 77")).toBeNull();
    }));

  test("a transaction is all or nothing", () =>
    withDatabase(fresh, async (db) => {
      await migrate(db, [...migrations, { ...numbers, id: 10_000 }]);
      const failing = db.transaction(async (tx) => {
        await tx.run("INSERT INTO numbers (n) VALUES (1)");
        await tx.run("INSERT INTO numbers (n) VALUES (1)");
      });
      await expect(failing).rejects.toThrow();
      expect(await db.all("SELECT n FROM numbers")).toEqual([]);
    }));

  test.if(kind === "postgres")("a transaction that a deadlock ended may be tried again", () =>
    withDatabase(fresh, async (db) => {
      await db.run("CREATE TABLE locked (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)");
      await db.run("INSERT INTO locked VALUES (1, 0), (2, 0)");
      const both = Promise.withResolvers<void>();
      let begun = 0;
      const add = (ids: readonly number[]) =>
        db.transaction(async (tx) => {
          for (const id of ids) {
            await tx.run("UPDATE locked SET n = n + 1 WHERE id = $1", [id]);
            if (++begun === 2) both.resolve();
            await both.promise;
          }
        });
      const ends = await Promise.allSettled([add([1, 2]), add([2, 1])]);
      const failed = ends.filter((end) => end.status === "rejected");
      expect(failed.map(({ reason }) => reason)).toEqual([expect.any(Outage)]);
      await add([2, 1]);
      expect(await db.all("SELECT n FROM locked")).toEqual([{ n: 2 }, { n: 2 }]);
    }),
  );

  test("nobody waits for a report, and one that fails or is given up harms no other", () =>
    withDatabase(fresh, async (db) => {
      const ended: string[] = [];
      const counting = (to: number) =>
        db.report(
          `WITH RECURSIVE counted AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM counted WHERE n < $1)
           SELECT MAX(n) AS n FROM counted`,
          [to],
        );
      const report = counting(300_000).finally(() => ended.push("report"));
      await db.get("SELECT 1").finally(() => ended.push("another question"));
      expect(await report).toEqual([{ n: 300_000 }]);
      expect(ended).toEqual(["another question", "report"]);
      const failureOf = (report: Promise<unknown>) => report.then(String, (error: Error) => error);
      expect(await failureOf(db.report("SELECT nothing"))).toBeInstanceOf(Error);
      await db.run("CREATE TABLE numbers (n INTEGER)");
      await db.run("INSERT INTO numbers VALUES (7)");
      expect(await db.report("SELECT n FROM numbers")).toEqual([{ n: 7 }]);
      if (kind === "postgres") return;
      expect(await failureOf(db.report("INSERT INTO numbers VALUES (8)"))).toBeInstanceOf(Outage);
      const givenUp = failureOf(counting(2_000_000));
      await db.close();
      expect(String(await givenUp)).toContain("the database is closed");
    }));

  test("a hundred concurrent increments lose none", () =>
    withDatabase(fresh, async (db) => {
      await migrate(db, [...migrations, { ...numbers, id: 10_000 }]);
      await db.run("INSERT INTO numbers (n, x) VALUES (1, 0)");
      await Promise.all(
        Array.from({ length: 100 }, () =>
          db.transaction(async (tx) => {
            await tx.lock("numbers");
            const row = await tx.get<{ x: number }>("SELECT x FROM numbers WHERE n = 1");
            await tx.run("UPDATE numbers SET x = $1 WHERE n = 1", [row!.x + 1]);
          }),
        ),
      );
      expect(await db.get("SELECT x FROM numbers")).toEqual({ x: 100 });
    }));

  test("a migration that was added between two others is applied, too", () =>
    withDatabase(fresh, async (db) => {
      const late = (id: number): Migration => ({
        id,
        name: `n${id}`,
        statements: [`CREATE TABLE n${id} (n {bigint})`],
      });
      await migrate(db, [...migrations, late(10_000), late(10_002)]);
      const all = [...migrations, late(10_000), late(10_001), late(10_002)];
      await migrate(db, all);
      await migrate(db, all);
      expect(await db.all("SELECT n FROM n10001")).toEqual([]);
    }));

  test("two processes that start at once migrate once", async () => {
    const { options, drop } = await emptyDatabase(kind);
    const script = `
      const { openStorage } = await import(${JSON.stringify(join(import.meta.dir, "../../src/storage/index.ts"))});
      const db = await openStorage(${JSON.stringify(options)});
      await db.close();`;
    const processes = Array.from({ length: 3 }, () =>
      Bun.spawn([process.execPath, "-e", script], { stderr: "pipe" }),
    );
    const results = await Promise.all(
      processes.map(async (child) => [await child.exited, await new Response(child.stderr).text()]),
    );
    expect(results).toEqual(results.map(() => [0, ""]));
    const db = await openDatabase(options);
    const applied = await db.all<{ id: number }>("SELECT id FROM schema_migrations ORDER BY id");
    expect(applied.map(({ id }) => id)).toEqual(migrations.map(({ id }) => id));
    await db.close();
    await drop();
  });

  test("a database from a newer version is refused with a clear message", async () => {
    const { options, drop } = await fresh();
    const db = await openStorage(options);
    await db.run("INSERT INTO schema_migrations (id, name, applied_at) VALUES (99999, 'future', $1)", [
      new Date().toISOString(),
    ]);
    await db.close();
    expect(openStorage(options)).rejects.toThrow(/newer version \(schema 99999/);
    await Bun.sleep(0);
    await drop();
  });

  test("a database from before the first release is refused with a sentence that says what to do", async () => {
    const { options, drop } = await emptyDatabase(kind);
    const db = await openDatabase(options);
    await migrate(db, [{ ...numbers, id: 31 }]);
    await db.close();
    await expect(openStorage(options)).rejects.toThrow(
      /before the first release \(schema 31\).*start with an empty SERVICE_DATA_DIR/,
    );
    await drop();
  });

  test("a migration that fails leaves nothing behind", async () => {
    const { options, drop } = await emptyDatabase(kind);
    const db = await openDatabase(options);
    const broken: Migration = {
      id: 2,
      name: "broken",
      statements: ["CREATE TABLE half (id INTEGER)", "CREATE NONSENSE"],
    };
    await migrate(db, [numbers]);
    const failed = await migrate(db, [numbers, broken]).then(
      () => false,
      () => true,
    );
    expect(failed).toBe(true);
    expect(await db.all("SELECT id FROM schema_migrations")).toEqual([{ id: 1 }]);
    expect(
      await db.get("SELECT id FROM half").then(
        () => true,
        () => false,
      ),
    ).toBe(false);
    await db.close();
    await drop();
  });

  if (kind === "sqlite") {
    test("another process's lock is waited for without blocking this one", async () => {
      const { options, drop } = await fresh();
      const db = await openStorage(options);
      const other = new Sqlite(join(options.dataDir, SQLITE_FILE));
      other.run("BEGIN IMMEDIATE");
      let ticks = 0;
      const ticking = setInterval(() => ticks++, 5);
      const write = db.run(
        "INSERT INTO providers (id, name, description, website_domain, created_at) VALUES ('a', 'a', '', '', $1)",
        [new Date().toISOString()],
      );
      await Bun.sleep(200);
      expect(ticks).toBeGreaterThan(5);
      // Readers go on meanwhile.
      expect(await db.all("SELECT id FROM providers")).toEqual([]);
      other.run("COMMIT");
      await write;
      clearInterval(ticking);
      expect(await db.all("SELECT id FROM providers")).toEqual([{ id: "a" }]);
      other.close();
      await db.close();
      await drop();
    });

    test("commits are durable: WAL with full synchronisation", async () => {
      const { options, drop } = await fresh();
      const db = await openStorage(options);
      expect(await db.transaction((tx) => tx.all("PRAGMA synchronous"))).toEqual([{ synchronous: 2 }]);
      expect(await db.transaction((tx) => tx.all("PRAGMA journal_mode"))).toEqual([{ journal_mode: "wal" }]);
      await db.close();
      await drop();
    });
  }
});
