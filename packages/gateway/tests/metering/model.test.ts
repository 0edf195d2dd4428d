import { expect, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import fc from "fast-check";
import type { Payer } from "../../src/kernel/payer.ts";
import { RequestRecord } from "../../src/kernel/request-record.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import type { Admission } from "../../src/rooms/metering/index.ts";
import { decodeLines } from "../../src/rooms/metering/journal/codec.ts";
import type { Database, Transaction } from "../../src/storage/contract.ts";
import { journalEntry } from "../support/request-lines.ts";
import { expectSumsOfRows } from "../support/sums-of-rows.ts";
import { type Bench, centRequest, centUsage, openBench, payer, person } from "./support.ts";

/**
 * How the next transactions go wrong: before a statement or their commit, so that they are undone, or just after it. A
 * number is that of the statement.
 */
interface Fault {
  at: number | "before commit" | "after commit";
  /** An outage lasts for several. */
  transactions: number;
}

/** The transaction, which is cut off before its statement of this number. */
function cutOff(tx: Transaction, at: number): Transaction {
  let statements = 0;
  const counted =
    <A extends unknown[], R>(run: (...args: A) => Promise<R>) =>
    async (...args: A) => {
      if (statements++ === at) throw new Error(`connection lost before statement ${at}`);
      return run(...args);
    };
  return {
    ...tx,
    all: counted(tx.all) as Transaction["all"],
    get: counted(tx.get) as Transaction["get"],
    run: counted(tx.run),
  };
}

/** A database that fails as told. */
class FaultyDatabase implements Database {
  readonly dialect: Database["dialect"];
  fault: Fault | null = null;
  constructor(readonly inner: Database) {
    this.dialect = inner.dialect;
  }
  all: Database["all"] = (sql, params) => this.inner.all(sql, params);
  get: Database["get"] = (sql, params) => this.inner.get(sql, params);
  run: Database["run"] = (sql, params) => this.inner.run(sql, params);
  report: Database["report"] = (sql, params) => this.inner.report(sql, params);
  async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const fault = this.fault;
    const at = fault?.at;
    if (fault && --fault.transactions <= 0) this.fault = null;
    const result = await this.inner.transaction(async (tx) => {
      const inside = await work(typeof at === "number" ? cutOff(tx, at) : tx);
      if (at === "before commit") throw new Error("connection lost before the commit");
      return inside;
    });
    if (at === "after commit") throw new Error("connection lost after the commit");
    return result;
  }
  lendWrites: Database["lendWrites"] = (work) => this.inner.lendWrites(work);
  checkpoint = () => this.inner.checkpoint();
  close = () => this.inner.close();
}

const SINK = { clock: new ManualClock(), ended() {} };

type Step =
  | { do: "admit"; who: number; cents: number }
  | { do: "settle"; which: number; cents: number }
  | { do: "abort"; which: number }
  | { do: "refuse"; who: number; isKnown: boolean }
  | { do: "topup"; who: number; points: number }
  | { do: "drain" }
  | { do: "fault"; fault: Fault }
  | { do: "wait"; ms: number }
  | { do: "crash"; cutBytes: number };

const index = fc.nat(30);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("admit" as const),
      who: index,
      cents: fc.integer({ min: 1, max: 30 }),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("settle" as const),
      which: index,
      cents: fc.integer({ min: 0, max: 30 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("abort" as const), which: index }) },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant("refuse" as const), who: index, isKnown: fc.boolean() }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant("topup" as const),
      who: index,
      points: fc.integer({ min: 1, max: 60 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("drain" as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant("fault" as const),
      fault: fc.record({
        at: fc.oneof(fc.constantFrom("before commit" as const, "after commit" as const), fc.nat(14)),
        transactions: fc.integer({ min: 1, max: 4 }),
      }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.constantFrom(200, 10_000, 20 * 60_000) }),
  },
  // Mostly the process dies, which takes nothing that was written; sometimes the power goes, and the tail with it.
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant("crash" as const),
      cutBytes: fc.oneof(fc.constant(0), fc.nat(700)),
    }),
  },
);

/** One run of the service after the other, on one database. */
class World {
  readonly payers: Payer[];
  readonly db: FaultyDatabase;
  readonly root = mkdtempSync(join(tmpdir(), "metering-model-"));
  readonly left: { bench: Bench; clock: ManualClock }[] = [];
  bench!: Bench;
  dataDir = "";
  clock = new ManualClock();
  open: { id: string; admission: Admission }[] = [];
  /** Requests whose line may have gone with the power. */
  readonly doubtful = new Set<string>();
  readonly settled = new Map<string, number>();
  readonly refused = new Set<string>();
  issued = 0;

  constructor(db: Database) {
    this.db = new FaultyDatabase(db);
    const groupId = crypto.randomUUID();
    this.payers = [
      payer(),
      payer({ groupId, costMultiplierMicros: 1_300_000 }),
      payer({ groupId, tier: "pro" }),
      person(),
    ];
  }

  async start(files: Record<string, Buffer> = {}): Promise<void> {
    this.dataDir = mkdtempSync(join(this.root, "run-"));
    const journal = join(this.dataDir, "journal");
    mkdirSync(journal);
    for (const [name, content] of Object.entries(files)) writeFileSync(join(journal, name), content);
    this.clock = new ManualClock(this.clock.nowMs);
    this.bench = await openBench({ db: this.db, dataDir: this.dataDir, clock: this.clock });
  }

  /** Leaves the process as it is, for good, and starts another on what the disk kept of its journal. */
  async crash(cutBytes: number): Promise<void> {
    const journal = join(this.dataDir, "journal");
    const copy = mkdtempSync(join(this.root, "disk-"));
    cpSync(journal, copy, { recursive: true, filter: (path) => !path.endsWith(".lock") });
    const names = readdirSync(copy).sort();
    const files = Object.fromEntries(names.map((name) => [name, readFileSync(join(copy, name))]));
    const last = names.at(-1);
    if (last && cutBytes > 0) {
      const content = files[last]!;
      const kept = content.subarray(0, Math.max(0, content.length - cutBytes));
      const before = decodeLines(content, 10_000).entries;
      for (const { requestId } of before.slice(decodeLines(kept, 10_000).entries.length))
        this.doubtful.add(requestId);
      files[last] = kept;
    }
    this.left.push({ bench: this.bench, clock: this.clock });
    this.open = [];
    await this.start(files);
  }

  async take(one: Step): Promise<void> {
    switch (one.do) {
      case "admit": {
        const request = centRequest(this.payers[one.who % this.payers.length]!, one.cents);
        // Some are requests of their own, and some tagged.
        if (one.who % 2 === 0)
          request.record = new RequestRecord(SINK, "/v1/chat/completions", request.requestId);
        if (one.who % 3 === 0) request.refId = `job ${one.who % 2}`;
        const admission = await Promise.resolve()
          .then(() => this.bench.metering.admit(request))
          .catch(() => null);
        if (admission) this.open.push({ id: request.requestId, admission });
        return;
      }
      case "settle": {
        const [chosen] = this.open.splice(one.which % Math.max(1, this.open.length), 1);
        if (!chosen) return;
        chosen.admission.settle(centUsage(one.cents));
        chosen.admission.settle(centUsage(99));
        this.settled.set(chosen.id, one.cents);
        return;
      }
      case "abort":
        this.open.splice(one.which % Math.max(1, this.open.length), 1)[0]?.admission.release();
        return;
      case "refuse": {
        const { userId, keyId } = this.payers[one.who % this.payers.length]!;
        const who = one.isKnown ? { userId, keyId } : { userId: null, keyId: null, attribution: null };
        const line = {
          ...journalEntry(),
          ...who,
          status: 429,
          code: "rate_limit_exceeded",
          costNanoUsd: null,
        };
        this.bench.metering.write({ ...line, atMs: this.clock.now(), channel: null });
        this.refused.add(line.requestId);
        return;
      }
      case "topup": {
        const who = this.payers[one.who % this.payers.length]!;
        const account = who.groupId
          ? ({ type: "group", id: who.groupId } as const)
          : ({ type: "user", id: who.userId } as const);
        const fault = this.db.fault;
        this.db.fault = null;
        await this.bench.topup(account, one.points);
        this.db.fault = fault;
        this.issued += one.points;
        return;
      }
      case "fault":
        this.db.fault = { ...one.fault };
        return;
      case "wait":
        this.clock.advance(one.ms);
        return;
      case "drain":
        return drain(this);
      case "crash":
        return this.crash(one.cutBytes);
    }
  }

  async check(): Promise<void> {
    expect((await verifyLedger(this.db.inner)).problems).toEqual([]);
    await expectSumsOfRows(this.db.inner);
    const rows = await this.bench.rows();
    for (const row of rows) {
      expect(this.settled.has(row.id)).toBe(true);
      expect(row.total_tokens).toBe(this.settled.get(row.id)! * 1000);
    }
    const points = rows.reduce((sum, row) => sum + (row.points ?? 0), 0);
    const { sum } = (await this.db.inner.get<{ sum: number }>(
      "SELECT CAST(COALESCE(SUM(balance), 0) AS BIGINT) AS sum FROM ledger_accounts WHERE type <> 'system'",
    ))!;
    expect(sum + points).toBe(this.issued);
    const rollups = await this.db.inner.get(
      `SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) AS requests, CAST(COALESCE(SUM(tokens), 0) AS BIGINT) AS tokens,
        CAST(COALESCE(SUM(quota_tokens), 0) AS BIGINT) AS quota FROM usage_months WHERE project = ''`,
    );
    const tokens = (some: typeof rows) => some.reduce((total, row) => total + row.total_tokens, 0);
    expect(rollups).toEqual({
      requests: rows.length,
      tokens: tokens(rows),
      quota: tokens(rows.filter((row) => row.points === null)),
    });
  }

  /** In the end: one row for every finished request, but for those that a power cut may have taken. */
  async checkEnd(): Promise<void> {
    await drain(this);
    await this.check();
    const ids = new Set((await this.bench.rows()).map(({ id }) => id));
    for (const id of this.settled.keys()) if (!this.doubtful.has(id)) expect(ids.has(id)).toBe(true);
    const uncharged = await this.db.inner.all<{ id: string }>(
      "SELECT id FROM requests WHERE channel IS NULL",
    );
    for (const { id } of uncharged) expect(this.refused.delete(id)).toBe(true);
    expect([...this.refused].filter((id) => !this.doubtful.has(id))).toEqual([]);
    const { totals } = await this.bench.usage.query({});
    expect(totals.requests).toBe(ids.size);
    expect(this.bench.metering.figures).toMatchObject({ rows: 0, bytes: 0 });
    for (const { admission } of this.open) admission.release();
    expect(this.bench.metering.holdCount).toBe(0);
  }

  async end(): Promise<void> {
    // The others were dead; they end in order only so that nothing of them reaches into the next world.
    for (const run of [...this.left, this]) {
      await drain(run);
      await run.bench.close();
    }
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** Lets the writer try until it has nothing left; a fault costs it one attempt and a pause. */
async function drain({ bench, clock }: { bench: Bench; clock: ManualClock }): Promise<void> {
  for (let attempt = 0; attempt < 1000; attempt++) {
    const done = bench.metering.flush(1);
    await settledSoon(done, () => clock.advance(10_000));
    // The rows of earlier runs, too.
    if ((await done) && bench.metering.figures.bytes === 0) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
    clock.advance(10_000);
  }
  throw new Error("the journal does not drain");
}

/** Moves the clock on whenever `work` waits for it. */
async function settledSoon(work: Promise<unknown>, tick: () => void): Promise<void> {
  let pending = true;
  const done = work.finally(() => {
    pending = false;
  });
  while (pending) {
    await new Promise((resolve) => setTimeout(resolve, 1));
    tick();
  }
  await done;
}

onEachDatabase("metering with crashes", (fresh, kind) => {
  test("one row a finished request, points conserved, whatever dies", () =>
    withDatabase(fresh, async (db) => {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 60, size: "max" }), async (steps) => {
          for (const table of [
            "requests",
            "usage_months",
            "key_spend",
            "request_sums",
            "request_asker_days",
            "request_ref_days",
            "ledger_entries",
            "ledger_movements",
          ]) {
            await db.run(`DELETE FROM ${table}`);
          }
          await db.run("DELETE FROM ledger_accounts WHERE type <> 'system'");
          await db.run("UPDATE ledger_accounts SET balance = 0, remainder = 0, version = 0");
          const world = new World(db);
          await world.start();
          try {
            for (const one of steps) {
              await world.take(one);
              if (one.do === "drain") await world.check();
            }
            await world.checkEnd();
          } finally {
            await world.end();
          }
        }),
        // On a busy machine as many as it has time for; a failure that was found is told, shrunk as far as there is time.
        { numRuns: kind === "sqlite" ? 50 : 10, interruptAfterTimeLimit: 40_000 },
      );
    }));
});
