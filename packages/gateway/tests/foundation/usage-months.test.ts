/** Postgres keeps usage rows by month: also those of a table that was there before, and while others use it. */
import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { emptyDatabase, onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { splitGrownTable } from "../../../../bench/months.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import type { Database } from "../../src/storage/contract.ts";
import { openDatabase, openStorage } from "../../src/storage/index.ts";
import { migrate } from "../../src/storage/migrate.ts";
import { migrations } from "../../src/storage/migrations/index.ts";
import { openBench, payer } from "../metering/support.ts";

const before = migrations.filter(({ id }) => id < 24);
const DAY_MS = 86_400_000;

const monthOf = (ms: number, later = 0) => {
  const date = new Date(ms);
  const start = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + later, 1));
  return { startMs: start.getTime(), name: start.toISOString().slice(0, 7).replace("-", "_") };
};
/** The months that a database has tables for now, of which the first hold what was there before. */
const tablesFrom = (later: number) =>
  Array.from({ length: 2 - later }, (_, i) => `usage_records_${monthOf(Date.now(), later + i).name}`);

async function tables(db: Database): Promise<string[]> {
  const rows = await db.all<{ name: string }>(
    `SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'usage_records'::regclass ORDER BY c.relname`,
  );
  return rows.map(({ name }) => name);
}

const add = (db: Pick<Database, "run">, atMs: number, id: string = Bun.randomUUIDv7()) =>
  db.run(
    `INSERT INTO usage_records (id, user_id, api_key_id, model, backend, prompt_tokens, completion_tokens, total_tokens,
       created_at, created_ms, estimated) VALUES ($1, $2, 'k', 'm', 'gateway', 1, 1, 2, $3, $4, FALSE)`,
    [id, crypto.randomUUID(), new Date(atMs).toISOString(), atMs],
  );

const countIn = async (db: Database, table: string) =>
  (await db.get<{ n: number }>(`SELECT COUNT(*) AS n FROM ${table}`))!.n;

/** A database as the version before left it, with some rows. */
async function grown(work: (db: Database, open: () => Promise<Database>) => Promise<void>): Promise<void> {
  const { options, drop } = await emptyDatabase("postgres");
  const db = await openDatabase(options);
  try {
    await migrate(db, before);
    for (let day = 0; day < 40; day++) await add(db, Date.now() - day * DAY_MS);
    await work(db, () => openStorage(options));
  } finally {
    await db.close();
    await drop();
  }
}

describe.if(process.env.TEST_POSTGRES_URL !== undefined)("usage by month", () => {
  test("a new database has each month in a table of its own, and takes any time", () =>
    withDatabase(
      () => emptyDatabase("postgres"),
      async (db) => {
        const { name, startMs } = monthOf(Date.now());
        expect(await tables(db)).toEqual(
          [...tablesFrom(0), "usage_records_other", `usage_records_until_${name}`].sort(),
        );
        const twice = Bun.randomUUIDv7();
        await add(db, startMs, twice);
        await expect(add(db, startMs + 5, twice)).rejects.toThrow(/duplicate key/);
        for (const atMs of [startMs - 1, 0, Date.UTC(2090, 4, 5), Date.UTC(2090, 5, 1)]) await add(db, atMs);
        expect(await countIn(db, `usage_records_${name}`)).toBe(1);
        expect(await countIn(db, `usage_records_until_${name}`)).toBe(2);
        expect(await countIn(db, "usage_records_other")).toBe(2);
        // When their time has come, rows move to their month. Several instances make it at once.
        const may = { nowMs: Date.UTC(2090, 4, 1), keptFromMs: null };
        await Promise.all([db.rollMonths(may), db.rollMonths(may)]);
        expect(await countIn(db, "usage_records_2090_05")).toBe(1);
        expect(await countIn(db, "usage_records_2090_06")).toBe(1);
        expect(await countIn(db, "usage_records_other")).toBe(0);
        // An instance that believes in the wrong year drops nothing.
        const before = await tables(db);
        await db.rollMonths({ nowMs: may.nowMs, keptFromMs: Date.UTC(2090, 3, 1) });
        expect(await tables(db)).toEqual(before);
        // Months that are no longer kept go whole.
        await db.rollMonths({ nowMs: Date.now(), keptFromMs: may.nowMs });
        expect(await tables(db)).toEqual([
          "usage_records_2090_05",
          "usage_records_2090_06",
          "usage_records_other",
        ]);
        expect(await countIn(db, "usage_records")).toBe(2);
      },
    ));

  test("a grown table is split while others write, by one of several instances that start", () =>
    grown(async (db, open) => {
      let isStarting = true;
      const writing = (async () => {
        let written = 0;
        for (; isStarting; written++) await add(db, Date.now());
        return written;
      })();
      const opened = await Promise.all([open(), open(), open()]);
      isStarting = false;
      const written = await writing;
      for (const each of opened) await each.close();
      expect(await countIn(db, "usage_records")).toBe(40 + written);
      const until = (await tables(db)).find((name) => name.includes("until"))!;
      expect(await countIn(db, until)).toBe(40 + written);
      // The bound of the old table is that of the part; nothing is left of how it came about.
      const left = await db.all("SELECT conname FROM pg_constraint WHERE conname = 'usage_records_bound'");
      expect(left).toEqual([]);
      await add(db, Date.UTC(2090, 1, 1));
      expect(await countIn(db, "usage_records_other")).toBe(1);
    }));

  test("an attempt that was cut off is begun again, whatever its bound was", () =>
    grown(async (db, open) => {
      await db.run(
        "ALTER TABLE usage_records ADD CONSTRAINT usage_records_bound CHECK (created_at < '2026-02-01') NOT VALID",
      );
      await (await open()).close();
      await add(db, Date.now());
      expect(await countIn(db, "usage_records")).toBe(41);
      // As if the split had been done, and its process had died before it was recorded.
      await db.run("DELETE FROM schema_migrations WHERE id = 24");
      const parts = await tables(db);
      await (await open()).close();
      expect(await tables(db)).toEqual(parts);
    }));

  test("while a transaction holds the table, others go on and the split waits for it", () =>
    grown(async (db, open) => {
      const { promise: isHeld, resolve: held } = Promise.withResolvers<void>();
      const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>();
      const long = db.transaction(async (tx) => {
        await add(tx, Date.now());
        held();
        await mayEnd;
      });
      await isHeld;
      const opening = open();
      // The split has tried and stepped back when its lock was seen to wait and these are through.
      let waited = 0;
      while (waited < 3) {
        const waits = await db.get(
          "SELECT 1 FROM pg_locks WHERE relation = 'usage_records'::regclass AND NOT granted",
        );
        if (waits) waited++;
        await add(db, Date.now());
      }
      end();
      await long;
      await (await opening).close();
      expect((await tables(db)).length).toBeGreaterThan(2);
    }));

  test("the bench of a grown table runs", async () => {
    const figures = await splitGrownTable(process.env.TEST_POSTGRES_URL!, { rows: 2_000, calmMs: 0 });
    expect(figures).toMatchObject({ rows: 2_000, inserted: expect.any(Number) });
  });
});

onEachDatabase("usage that is recorded twice", (fresh) => {
  test("in two months, as a job's cost may be after a crash, has one row and is paid once", () =>
    withDatabase(fresh, async (db) => {
      const dataDir = mkdtempSync(join(tmpdir(), "gateway-months-"));
      const who = payer({ tier: "free" });
      const requestId = crypto.randomUUID();
      const nowMs = Date.now();
      const usage = {
        backend: "video",
        promptTokens: 0,
        completionTokens: 0,
        estimated: false,
        costUsd: 0.5,
      };
      const benches = [0, 1].map((later) =>
        openBench({
          db,
          dataDir: join(dataDir, String(later)),
          clock: { ...systemClock, now: () => monthOf(nowMs, later).startMs },
        }),
      );
      const both = await Promise.all(benches);
      for (const { metering } of both)
        metering.record({ requestId, payer: who, model: "clip", refId: null }, usage);
      await Promise.all(both.map((bench) => bench.close()));
      expect(await countIn(db, "usage_records")).toBe(1);
      const months = await db.all<{ requests: number }>(
        "SELECT requests FROM usage_months WHERE project = '' AND user_id = $1",
        [who.userId],
      );
      expect(months).toEqual([{ requests: 1 }]);
      rmSync(dataDir, { recursive: true, force: true });
    }));
});
