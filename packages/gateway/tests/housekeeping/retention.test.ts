import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { bootGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { isoTime, systemClock } from "../../src/kernel/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { Housekeeping } from "../../src/rooms/system/housekeeping.ts";
import { Usage } from "../../src/rooms/usage/index.ts";
import { VideoStore } from "../../src/rooms/video/store.ts";
import type { Database } from "../../src/storage/contract.ts";
import { DatabaseLeases } from "../../src/storage/leases.ts";
import { openBench, payer, spend } from "../metering/support.ts";

const NOVEMBER = Date.parse("2026-11-15T12:00:00Z");

/** Requests in the middle of each of the months, one more in each than in the one before. */
async function spendInMonths(db: Database, months: readonly string[]): Promise<string> {
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-retention-"));
  const who = payer({ tier: "enterprise" });
  for (const [i, month] of months.entries()) {
    const clock = { ...systemClock, now: () => Date.parse(`${month}-10T00:00:00Z`) };
    const bench = await openBench({ db, dataDir, clock });
    for (let n = 0; n <= i; n++) await spend(bench, who);
    expect(await bench.metering.flush(20_000)).toBe(true);
    await bench.close();
  }
  rmSync(dataDir, { recursive: true, force: true });
  return who.userId;
}

onEachDatabase("retention", (fresh) => {
  test("rows of old months go in small steps, totals stay, and lists agree with their count", () =>
    withDatabase(fresh, async (db) => {
      const userId = await spendInMonths(db, ["2026-07", "2026-08", "2026-09", "2026-10", "2026-11"]);
      const clock = new ManualClock(NOVEMBER);
      const usage = new Usage({ db, clock, settings: { usageRetentionMonths: 2 } });
      const actor = { userId, email: "", name: "", isAdmin: false };
      const before = await usage.query({ group_by: "model" });
      // What is on its way out is not listed any more, whether it is gone yet or not.
      expect(await usage.list(actor, {})).toMatchObject({ total: 12, records: { length: 12 } });
      const rows = { records_total: 12, records: { length: 12 }, totals: { requests: 15 } };
      expect(await usage.query({ include_records: true })).toMatchObject(rows);
      expect(await usage.sweepRows(NOVEMBER, 2)).toBe(2);
      expect(await usage.sweepRows(NOVEMBER, 2)).toBe(1);
      expect(await usage.sweepRows(NOVEMBER, 2)).toBe(0);
      expect(await db.get("SELECT COUNT(*) AS n FROM usage_records")).toEqual({ n: 12 });
      expect(await usage.list(actor, {})).toMatchObject({ total: 12, records: { length: 12 } });
      expect(await usage.query({ group_by: "model" })).toEqual(before);
      expect(await usage.query({ include_records: true })).toMatchObject(rows);
      const september = {
        include_records: true,
        since: Date.parse("2026-07-01T00:00:00Z"),
        until: Date.parse("2026-10-01T00:00:00Z"),
      };
      expect(await usage.query(september)).toMatchObject({ records_total: 3, records: { length: 3 } });
      expect(before.totals.requests).toBe(15);
      const all = new Usage({ db, clock, settings: { usageRetentionMonths: null } });
      expect(await all.sweepRows(NOVEMBER, 100)).toBe(0);
    }));

  test("expired tokens, invitations and the payloads of ended jobs go", () =>
    withDatabase(fresh, async (db) => {
      const id = () => crypto.randomUUID();
      const user = id();
      const [past, future] = [isoTime(NOVEMBER - 60_000), isoTime(NOVEMBER + 60_000)];
      await db.run(
        "INSERT INTO users (id, email, name, password_hash, is_admin, created_at) VALUES ($1, 'a@b', 'a', '', FALSE, $2)",
        [user, past],
      );
      const store = new VideoStore(db);
      const job = (settled: boolean, createdMs: number) =>
        store.insert({
          id: id(),
          user_id: user,
          payer: "{}",
          model: "m",
          backend: "b",
          request: '{"images":["large"]}',
          status: settled ? "failed" : "queued",
          progress: 0,
          task_id: null,
          result: null,
          error: null,
          cost: 0,
          settled,
          stream_id: id(),
          created_at: isoTime(createdMs),
          deadline_at: future,
          next_step_at: past,
          step_count: 0,
          facts: null,
          bound_usd: null,
          warnings: null,
        });
      const days = 24 * 3600_000;
      await job(true, NOVEMBER - 2 * days);
      await job(false, NOVEMBER - 2 * days);
      await job(true, NOVEMBER - 60_000);
      expect(await store.dropPayloads(isoTime(NOVEMBER - days), 10)).toBe(1);
      expect(await store.dropPayloads(isoTime(NOVEMBER - days), 10)).toBe(0);
    }));

  test("a lease is one instance's until it lapses or is given back", () =>
    withDatabase(fresh, async (db) => {
      const clock = new ManualClock(NOVEMBER);
      const [a, b] = ["a", "b"].map((instance) => new DatabaseLeases({ db, clock, instance }));
      const both = await Promise.all([a!.acquire("x", 1_000), b!.acquire("x", 1_000)]);
      expect(both.toSorted()).toEqual([false, true]);
      const [holder, other] = both[0] ? [a!, b!] : [b!, a!];
      clock.advance(900);
      expect(await holder.acquire("x", 1_000)).toBe(true);
      clock.advance(900);
      expect(await other.acquire("x", 1_000)).toBe(false);
      clock.advance(200);
      expect(await other.acquire("x", 1_000)).toBe(true);
      await other.releaseAll();
      expect(await holder.acquire("x", 1_000)).toBe(true);
      // Set back by hours: what a dead instance held until then does not last that long.
      clock.nowMs = NOVEMBER - 2 * 3_600_000;
      expect(await other.acquire("x", 1_000)).toBe(true);
    }));

  test("a lease that is far from its end, or another's, is looked at and not written", () =>
    withDatabase(fresh, async (db) => {
      const clock = new ManualClock(NOVEMBER);
      const heldUntil = async () => (await db.get<{ held_until: string }>("SELECT held_until FROM leases"))!;
      const [a, b] = ["a", "b"].map((instance) => new DatabaseLeases({ db, clock, instance }));
      expect(await a!.acquire("x", 1_000)).toBe(true);
      const first = await heldUntil();
      clock.advance(400);
      expect([await a!.acquire("x", 1_000), await b!.acquire("x", 1_000)]).toEqual([true, false]);
      expect(await heldUntil()).toEqual(first);
      clock.advance(200);
      expect(await a!.acquire("x", 1_000)).toBe(true);
      expect(await heldUntil()).not.toEqual(first);
    }));

  test("a process that is alone sweeps without a lease, so that nothing is written", () =>
    withDatabase(fresh, async (db) => {
      const leases = new DatabaseLeases({ db, clock: systemClock, instance: "a" });
      let sweeps = 0;
      const rows = async () => {
        sweeps++;
        return 0;
      };
      const alone = { clock: systemClock, log: silentLog, bus: new InProcessBus(), leases, sweeps: { rows } };
      const housekeeping = new Housekeeping(alone);
      await housekeeping.sweep();
      expect([sweeps, await db.all("SELECT * FROM leases")]).toEqual([1, []]);
      await housekeeping.close();
    }));

  test("a sweep goes on until nothing is left, and only where the lease is", () =>
    withDatabase(fresh, async (db) => {
      const left = { a: 2_500, b: 10 };
      const sweepers = (["a", "b"] as const).map(
        (instance) =>
          new Housekeeping({
            clock: systemClock,
            log: silentLog,
            bus: Object.assign(new InProcessBus(), { shared: true }),
            leases: new DatabaseLeases({ db, clock: systemClock, instance }),
            sweeps: {
              rows: async (_, rowsMax) => {
                const count = Math.min(left[instance], rowsMax);
                left[instance] -= count;
                return count;
              },
            },
          }),
      );
      await sweepers[0]!.sweep();
      await sweepers[1]!.sweep();
      expect(left).toEqual({ a: 0, b: 10 });
      for (const sweeper of sweepers) await sweeper.close();
    }));
});

test("the setting reaches the service, and a minute after its start it sweeps", async () => {
  const clock = new ManualClock(NOVEMBER);
  const gateway = await bootGateway({ config: { usageRetentionMonths: 1 }, overrides: { clock } });
  try {
    await gateway.signIn("ada");
    // Refresh tokens live for 30 days.
    clock.jump(31 * 24 * 3600_000);
    const { Database } = await import("bun:sqlite");
    const db = new Database(join(gateway.dataDir, "gateway.sqlite"), { readonly: true });
    const deadline = Date.now() + 20_000;
    const count = () => db.query("SELECT COUNT(*) AS n FROM refresh_tokens").get() as { n: number };
    while (count().n > 0 && Date.now() < deadline) {
      clock.advance(60_000);
      await Bun.sleep(20);
    }
    expect(count().n).toBe(0);
    db.close();
  } finally {
    await gateway.stop();
  }
});

test("a group's pool is filled up when the month begins, and nobody has to ask for it", async () => {
  const clock = new ManualClock(NOVEMBER);
  const gateway = await bootGateway({ overrides: { clock } });
  try {
    const before = await gateway.signIn("ada");
    const { id: group_id } = await gateway.rpc("group.create", { name: "lab" }, before);
    await gateway.rpc("group.update", { group_id, monthly_refill: 100 }, before);
    const share = { group_id, user_id: "ada@example.com", points: 70 };
    await gateway.rpc("group.credits.allocate", share, before);
    clock.jump(Date.parse("2026-12-01T00:00:00Z") - NOVEMBER);
    // Its session has ended meanwhile.
    const now = await gateway.signIn("ada");
    const pool = () => gateway.rpc("group.credits.balance", { group_id }, now);
    expect((await pool()).balance).toBe(30);
    clock.advance(60_000);
    await until("the refill", async () => (await pool()).balance === 100);
    expect((await pool()).entries[0]).toMatchObject({ kind: "topup", points: 70, note: "monthly refill" });
  } finally {
    await gateway.stop();
  }
});
