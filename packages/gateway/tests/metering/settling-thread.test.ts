import { expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { until } from "@model-gateway/testing/until.ts";
import { SettlingThread } from "../../src/app/journal-thread/thread.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { createLog, silentLog } from "../../src/kernel/log.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { encodeEntry } from "../../src/rooms/metering/journal/codec.ts";
import { openStorage } from "../../src/storage/index.ts";
import { FAULTS } from "./faults.ts";
import { entry } from "./journal-support.ts";
import { type Bench, openBench, payer, spend } from "./support.ts";

const workerFile = (name: string) => new URL(name, import.meta.url).href;
const realWorker = () => new Worker(workerFile("../../src/app/journal-thread/worker.ts"), { ref: false });
const POOL_POINTS = 200;
/** On a busy machine a thread that works may be silent for seconds. */
const PATIENT_TICKS = 30;

interface Scene extends Bench {
  lines: string[];
  /** Requests that were answered. */
  answered: string[];
  spendSome(count: number): Promise<void>;
  /** Everything arrived once, and the points are where they belong. */
  verify(): Promise<void>;
}

onEachDatabase("the settling thread", (fresh) => {
  async function onScene(
    startWorker: () => Worker,
    run: (scene: Scene) => Promise<void>,
    silentTicksMax = () => PATIENT_TICKS,
  ): Promise<void> {
    const { options, drop } = await fresh();
    const db = await openStorage(options);
    const dataDir = mkdtempSync(join(tmpdir(), "settling-thread-"));
    const lines: string[] = [];
    const log = createLog({ level: "warn", format: "json", write: (line) => lines.push(line) });
    const thread = new SettlingThread({
      db,
      log,
      storage: options,
      pointsPerUsd: 100,
      startWorker,
      get silentTicksMax() {
        return silentTicksMax();
      },
    });
    const bench = await openBench({ db, dataDir, clock: systemClock, log, settler: thread });
    const groupId = crypto.randomUUID();
    await bench.topup({ type: "group", id: groupId }, POOL_POINTS);
    const payers = [payer({ groupId, tier: "enterprise" }), payer({ tier: "pro" })];
    const answered: string[] = [];
    const spendSome = async (count: number) => {
      for (let n = 0; n < count; n++) answered.push(await spend(bench, payers[n % 2]!));
    };
    const verify = async () => {
      expect(await bench.metering.flush(30_000)).toBe(true);
      const rows = await bench.rows();
      expect(rows.map(({ id }) => id)).toEqual(answered.toSorted());
      const taken = rows.reduce((sum, { points }) => sum + (points ?? 0), 0);
      const { balance } = await bench.ledger.statement({ type: "group", id: groupId });
      expect(taken + balance).toBe(POOL_POINTS);
      expect((await verifyLedger(db)).problems).toEqual([]);
      // What the thread changed is known here, also what was committed by one that did not live to tell.
      expect(bench.ledger.balances.peek({ type: "group", id: groupId })?.balance).toBe(balance);
    };
    try {
      await run({ ...bench, lines, answered, spendSome, verify });
    } finally {
      await bench.close();
      await thread.close();
      await db.close();
      rmSync(dataDir, { recursive: true, force: true });
      await drop();
    }
  }

  for (const fault of FAULTS)
    test(`that ${fault} is noticed, logged and replaced, and nothing is lost or doubled`, async () => {
      let started = 0;
      const isSilent = fault.startsWith("hangs");
      const faulty = () => new Worker(workerFile("faulty-settling-worker.ts"), { argv: [fault], ref: false });
      await onScene(
        () => (started++ < 2 ? faulty() : realWorker()),
        async ({ spendSome, verify, lines }) => {
          await spendSome(50);
          await until("the third thread", () => started >= 3);
          await spendSome(50);
          await verify();
          expect(started).toBeGreaterThanOrEqual(3);
          const said = lines.join("");
          expect(said).toContain("the settling thread ended");
          expect(said).toContain("they stay in the journal");
          expect(said).toContain(isSilent ? "no answer for 1 s" : "it ended");
        },
        () => (isSilent && started <= 2 ? 1 : PATIENT_TICKS),
      );
    });

  test("ended at any moment under load, loses and doubles nothing", async () => {
    const workers: Worker[] = [];
    const start = () => {
      const worker = realWorker();
      workers.push(worker);
      return worker;
    };
    await onScene(start, async ({ spendSome, verify, metering, answered }) => {
      for (let round = 0; round < 6; round++) {
        const known = workers.length;
        await spendSome(40);
        const flushed = metering.flush(30_000);
        await until("a thread", () => workers.length > 0);
        if (workers.length === known || round === 0) await Bun.sleep(Math.random() * 15);
        workers.at(-1)!.terminate();
        await flushed;
      }
      expect(answered).toHaveLength(240);
      await verify();
      expect(workers.length).toBeGreaterThan(1);
    });
  });

  test("that cannot be started leaves the rows in the journal until one can", async () => {
    let broken = true;
    const nothing = () => new Worker(workerFile("no-such-worker.ts"), { ref: false });
    await onScene(
      () => (broken ? nothing() : realWorker()),
      async ({ spendSome, verify, metering, lines }) => {
        await spendSome(20);
        expect(await metering.flush(300)).toBe(false);
        expect(metering.figures.rows).toBe(20);
        expect(lines.join("")).toContain("the settling thread ended");
        broken = false;
        await verify();
        expect(metering.figures).toMatchObject({ rows: 0, bytes: 0 });
      },
    );
  });

  test("writes of the main thread and of the settling thread take turns", async () => {
    await onScene(realWorker, async ({ spendSome, verify, topup, lines }) => {
      const other = { type: "user", id: crypto.randomUUID() } as const;
      let writing = true;
      const load = (async () => {
        for (let n = 0; n < 40; n++) {
          await spendSome(25);
          await Bun.sleep(1);
        }
        writing = false;
      })();
      let writes = 0;
      while (writing) {
        await topup(other, 1);
        writes++;
        // The others have a turn.
        await new Promise((resolve) => setImmediate(resolve));
      }
      await load;
      await verify();
      expect(writes).toBeGreaterThan(0);
      expect(lines.filter((line) => /locked|busy/i.test(line))).toEqual([]);
    });
  });
});

test("a service that stops does not wait for a thread that hangs", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "settling-stop-"));
  const storage = { dataDir, databaseUrl: null };
  const db = await openStorage(storage);
  const thread = new SettlingThread({
    db,
    log: silentLog,
    storage,
    pointsPerUsd: 100,
    startWorker: () =>
      new Worker(workerFile("faulty-settling-worker.ts"), { argv: ["hangs after the commit"], ref: false }),
  });
  const file = join(dataDir, "lines.jsonl");
  const line = encodeEntry(entry());
  writeFileSync(file, line);
  const lines = { file, start: 0, end: Buffer.byteLength(line), rowsMax: 10 };
  const order = thread.settle({ ...lines, mayExist: false, reserved: true });
  const failed = order.then(
    () => null,
    (error: Error) => error.message,
  );
  const count = async () => (await db.get<{ n: number }>("SELECT COUNT(*) AS n FROM usage_records"))!.n;
  await until("the row is committed", async () => (await count()) === 1);
  await thread.close();
  expect(await failed).toContain("the service stops");
  // Writes that waited for the thread are not stuck.
  await db.run("DELETE FROM requests");
  await db.close();
  rmSync(dataDir, { recursive: true, force: true });
});

test("a database file that cannot grow keeps rows in the journal, and the next run settles them", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "settling-full-"));
  const storage = { dataDir, databaseUrl: null };
  const db = await openStorage(storage);
  // The database has little room left below the limit; the journal has enough.
  await db.run("CREATE TABLE filling (bytes BLOB)");
  await db.run("INSERT INTO filling VALUES (zeroblob(3000000))");
  await db.close();
  const rows = 8_000;
  const script = join(import.meta.dir, "full-disk-worker.ts");
  // The largest file that the shell allows, in blocks of 512 bytes.
  const child = Bun.spawn(
    [
      "/bin/sh",
      "-c",
      'ulimit -f 8000; exec "$0" "$@"',
      process.execPath,
      script,
      JSON.stringify(storage),
      `${rows}`,
    ],
    { stdout: "pipe", stderr: "inherit" },
  );
  const ids = (await new Response(child.stdout).text()).trimEnd().split("\n");
  await child.exited;
  expect(child.signalCode).toBe("SIGKILL");
  expect(ids).toHaveLength(rows);
  const left = readdirSync(join(dataDir, "journal")).filter((name) => name.endsWith(".jsonl"));
  expect(left.length).toBeGreaterThan(0);

  const again = await openStorage(storage);
  const before = (await again.get<{ n: number }>("SELECT COUNT(*) AS n FROM usage_records"))!.n;
  expect(before).toBeLessThan(rows);
  const bench = await openBench({ db: again, dataDir, clock: systemClock, threadOn: storage });
  await until("all rows are settled", () => bench.metering.figures.bytes === 0);
  expect((await bench.rows()).map(({ id }) => id)).toEqual(ids.toSorted());
  expect((await verifyLedger(again)).problems).toEqual([]);
  await bench.close();
  await again.close();
  rmSync(dataDir, { recursive: true, force: true });
});
