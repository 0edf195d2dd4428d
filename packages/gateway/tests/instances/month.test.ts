import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { openStorage } from "../../src/storage/index.ts";
import { DEAR, honestUpstream, PRICES } from "../support/spending.ts";
import { company, countServed, registerBackend, sharings } from "./support.ts";

const LAST_SECOND = Date.parse("2026-11-30T23:59:59.000Z");
const NEXT_MONTH = Date.parse("2026-12-01T00:00:00.000Z");
/** Covers ten requests of 1,000 tokens, which the upstream uses up. */
const BUDGET_USD = 0.305;
const POOL = 100_000;

/** Time that passes, at a date that stands still. */
const frozen = (nowMs: number): Clock & { nowMs: number } => ({
  nowMs,
  now() {
    return this.nowMs;
  },
  elapsed: () => systemClock.elapsed(),
  after: (delayMs, run) => systemClock.after(delayMs, run),
  every: (periodMs, run) => systemClock.every(periodMs, run),
});

describe.each(sharings)("two instances %s, when the month turns", (sharing) => {
  test("serve each month's budget of a member once, refill the pool once, and give each code's points once", async () => {
    const clock = frozen(LAST_SECOND);
    const { boot, storage: where, stop } = await company(sharing);
    const dir = mkdtempSync(join(tmpdir(), "gateway-month-"));
    const pricingFile = join(dir, "prices.json");
    writeFileSync(pricingFile, JSON.stringify(PRICES));
    const storage = await openStorage(where);
    await storage.run("UPDATE billing_tiers SET rpm = 1000000");
    await storage.close();
    const upstream = startUpstream({ models: [DEAR], handler: honestUpstream(() => {}) });
    const options = { config: { apiRateLimitRpm: 1_000_000, pricingFile }, overrides: { clock } };
    const gateways = [await boot(options), await boot(options)] as const;
    const [here, there] = gateways;
    try {
      await registerBackend(here, { name: "first", type: "external", url: upstream.url });
      for (const { app } of gateways)
        await until("the backend serves a model", () => app.rooms.routing.modelCount > 0);
      const root = await here.signIn("root");
      const ann = await here.signIn("ann");
      const { id: group_id } = await here.rpc("group.create", { name: "lab" }, ann);
      await here.rpc("group.update", { group_id, monthly_refill: POOL }, root);
      await here.rpc("group.update", { group_id, member_budget_usd: BUDGET_USD }, ann);
      const { key } = await here.rpc("keys.create", { name: "k", group_id }, ann);
      const served = () => countServed({ gateways, keys: [key] }, 60);
      expect(await served()).toBe(10);
      expect(await served()).toBe(0);
      const november = (await here.rpc("group.get", { group_id }, ann)).balance;
      expect(november).toBeLessThan(POOL);

      // Their last moment is the month's: one that is redeemed in time counts, one that is late does not.
      const { codes } = await here.rpc("codes.create", { count: 4, points: 3, ttl_secs: 1 }, root);
      const redeem = (code: string) =>
        [here, there].flatMap((on) => [root, ann].map((bearer) => on.call("codes.redeem", { code }, bearer)));
      const points = async () => {
        const wallets = [root, ann].map((bearer) => there.rpc("ledger.self", {}, bearer));
        return (await Promise.all(wallets)).reduce((sum, { balance }) => sum + balance, 0);
      };
      const before = await points();
      const inTime = await Promise.all(redeem(codes[0]));
      expect(inTime.filter(({ error }) => !error)).toHaveLength(1);
      expect(await points()).toBe(before + 3);

      const turning = [...redeem(codes[1]), ...redeem(codes[2])];
      clock.nowMs = NEXT_MONTH;
      const given = (await Promise.all(turning)).filter(({ error }) => !error).length;
      expect(given).toBeLessThanOrEqual(2);
      expect((await Promise.all(redeem(codes[3]))).every(({ error }) => error)).toBe(true);
      expect(await points()).toBe(before + 3 + 3 * given);

      await Promise.all(gateways.map(({ app }) => app.rooms.groups.sweepRefills(NEXT_MONTH, 10)));
      const { balance, entries } = await there.rpc("group.credits.balance", { group_id }, ann);
      expect(balance).toBe(POOL);
      const refills = entries.filter(({ note }: { note: string }) => note === "monthly refill");
      expect(refills.map((entry: { points: number }) => entry.points)).toEqual([POOL - november, POOL]);

      expect(await served()).toBe(10);
      expect(await served()).toBe(0);
      expect((await verifyLedger(here.app.rooms.usage.store.db)).problems).toEqual([]);
    } finally {
      for (const gateway of gateways) await gateway.stop();
      upstream.stop();
      await stop();
      rmSync(dir, { recursive: true, force: true });
    }
  }, 60_000);
});
