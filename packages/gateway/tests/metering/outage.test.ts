import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { kinds } from "@model-gateway/testing/databases.ts";
import { startPostgres } from "@model-gateway/testing/services.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { openStorage, SQLITE_FILE, type StorageOptions } from "../../src/storage/index.ts";
import { openBench, payer, spend } from "./support.ts";

const OUTAGE_MS = 6_000;
const BETWEEN_REQUESTS_MS = 4;

/** Takes the database away; the returned function brings it back. */
type TakeAway = () => Promise<() => Promise<void>>;

/** Another process that writes to the same file and does not finish. */
const lockSqlite =
  ({ dataDir }: StorageOptions): TakeAway =>
  async () => {
    const script = `
      const { Database } = require("bun:sqlite");
      const db = new Database(${JSON.stringify(join(dataDir, SQLITE_FILE))});
      db.run("PRAGMA busy_timeout = 20000");
      db.run("BEGIN IMMEDIATE");
      process.stdout.write("locked");
      process.stdin.once("data", () => { db.run("ROLLBACK"); process.exit(0); });`;
    const locker = Bun.spawn([process.execPath, "-e", script], { stdin: "pipe", stdout: "pipe" });
    const reader = locker.stdout.getReader();
    await reader.read();
    return async () => {
      locker.stdin.write("done");
      await locker.stdin.end();
      await locker.exited;
    };
  };

/** Load before, during and after the outage: every request must be answered and end up as one row. */
async function outlast(storage: StorageOptions, takeAway: TakeAway): Promise<void> {
  const db = await openStorage(storage);
  const bench = await openBench({ db, dataDir: storage.dataDir, clock: systemClock, threadOn: storage });
  const groupId = crypto.randomUUID();
  await bench.topup({ type: "group", id: groupId }, 200);
  const payers = [payer({ groupId, tier: "pro" }), payer({ tier: "pro" }), payer({ tier: "enterprise" })];

  const answered: string[] = [];
  let failure: unknown = null;
  let on = true;
  const load = (async () => {
    for (let n = 0; on; n++) {
      answered.push(await spend(bench, payers[n % payers.length]!).catch((error) => (failure = error)));
      await Bun.sleep(BETWEEN_REQUESTS_MS);
    }
  })();
  const answeredMore = async (count: number) => {
    const target = answered.length + count;
    while (answered.length < target) await Bun.sleep(5);
  };
  await answeredMore(50);
  const bringBack = await takeAway();
  const before = answered.length;
  await Bun.sleep(OUTAGE_MS);
  expect(answered.length).toBeGreaterThan(before);
  expect(bench.metering.figures.rows).toBeGreaterThan(0);
  expect(bench.metering.figures.stalled_seconds).toBeGreaterThan(0);
  await bringBack();
  // One in three is paid from the pool, which has to be spent.
  await answeredMore(Math.max(50, 600 - answered.length));
  on = false;
  await load;

  expect(failure).toBeNull();
  expect(await bench.metering.flush(60_000)).toBe(true);
  const rows = await bench.rows();
  expect(rows.map(({ id }) => id)).toEqual(answered.toSorted());
  expect(rows.filter(({ points }) => points === 1)).toHaveLength(200);
  expect((await verifyLedger(db)).problems).toEqual([]);
  await bench.close();
  await db.close();
}

const temporaryDir = () => mkdtempSync(join(tmpdir(), "gateway-outage-"));

async function outlastSqlite(): Promise<void> {
  const dataDir = temporaryDir();
  const storage = { dataDir, databaseUrl: null };
  await outlast(storage, lockSqlite(storage));
  rmSync(dataDir, { recursive: true, force: true });
}

async function outlastPostgres(): Promise<void> {
  const clusterDir = temporaryDir();
  const dataDir = temporaryDir();
  let server = await startPostgres(clusterDir);
  try {
    await outlast({ dataDir, databaseUrl: server.url }, async () => {
      const ended = new Promise((resolve) => server.child.once("exit", resolve));
      // Immediate: no farewell to anyone, and recovery from the log at the next start.
      server.child.kill("SIGQUIT");
      await ended;
      return async () => {
        server = await server.restart();
      };
    });
  } finally {
    server.child.kill("SIGKILL");
    for (const dir of [clusterDir, dataDir]) rmSync(dir, { recursive: true, force: true });
  }
}

test(
  "a database that is away for a while fails no request, and every row arrives",
  async () => {
    const outages = [outlastSqlite(), ...(kinds.length > 1 ? [outlastPostgres()] : [])];
    const results = await Promise.allSettled(outages);
    for (const result of results) if (result.status === "rejected") throw result.reason;
    expect(results).toHaveLength(kinds.length);
  },
  { timeout: 180_000 },
);
