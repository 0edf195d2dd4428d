import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ADMIN_TOKEN, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { openStorage } from "../../src/storage/index.ts";
import { costUsd, DEAR, honestUpstream, PRICES, QUOTA_USD } from "../support/spending.ts";
import { askDear, company, countServed, registerBackend, type Sharing, sharings } from "./support.ts";

const INSTANCES = 3;
/** 1,024 tokens of the request that crosses the line. */
const SLACK_USD = 1_024 * 30e-6 + 0.001;

interface Cluster {
  gateways: TestGateway[];
  servedUsd(): number;
  stop(): Promise<void>;
}

/** Three instances before an upstream that says what it served. */
async function bootCluster(sharing: Sharing): Promise<Cluster> {
  let servedUsd = 0;
  const { boot, storage: where, stop } = await company(sharing);
  const dir = mkdtempSync(join(tmpdir(), "gateway-cluster-"));
  const pricingFile = join(dir, "prices.json");
  writeFileSync(pricingFile, JSON.stringify(PRICES));
  const storage = await openStorage(where);
  await storage.run("UPDATE billing_tiers SET rpm = 1000000");
  await storage.close();
  const config = { apiRateLimitRpm: 1_000_000, pricingFile };
  const upstream = startUpstream({
    models: [DEAR],
    handler: honestUpstream((tokens) => {
      servedUsd += costUsd(tokens);
    }),
  });
  const gateways = await Promise.all(Array.from({ length: INSTANCES }, () => boot({ config })));
  await registerBackend(gateways[0]!, { name: "first", type: "external", url: upstream.url });
  for (const { app } of gateways)
    await until("the backend serves a model", () => app.rooms.routing.modelCount > 0);
  return {
    gateways,
    servedUsd: () => servedUsd,
    async stop() {
      for (const gateway of gateways) await gateway.stop();
      upstream.stop();
      await stop();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

describe.each(sharings)("three instances %s", (sharing) => {
  test("let at most one request across a quota's line, whatever the key, its label and the instance", async () => {
    const { gateways, servedUsd, stop } = await bootCluster(sharing);
    try {
      const [first] = gateways as [TestGateway];
      const token = await first.signIn("ada");
      const keys = await Promise.all(
        Array.from({ length: 12 }, async (_, i) =>
          first.rpc("keys.create", { name: `k${i}`, project: `label ${i}` }, token),
        ),
      );
      const statuses = await Promise.all(
        Array.from({ length: 120 }, (_, i) => askDear({ gateways, keys: keys.map(({ key }) => key) }, i)),
      );
      for (const status of statuses) expect([200, 429]).toContain(status);
      expect(statuses.filter((status) => status === 200).length).toBeGreaterThan(25);
      expect(servedUsd()).toBeLessThanOrEqual(QUOTA_USD + SLACK_USD);
      await until("the rows add up to what was served", async () => {
        const rows = (
          await Promise.all(gateways.map((one) => one.rpc("usage.list", { limit: 200 }, token)))
        ).at(-1);
        const charged = rows.records.reduce((sum: number, { cost }: { cost: number }) => sum + cost, 0);
        return Math.abs(charged - servedUsd()) < 1e-6;
      });
      for (const { app } of gateways) expect(app.rooms.metering).toMatchObject({ holdCount: 0 });
      expect((await verifyLedger(first.app.rooms.usage.store.db)).problems).toEqual([]);
    } finally {
      await stop();
    }
  });

  test("serve exactly what the budget of a key, or of a member with several, covers, and hear of its edits at once", async () => {
    const { gateways, servedUsd, stop } = await bootCluster(sharing);
    try {
      const [first, second] = gateways as [TestGateway, TestGateway];
      const token = await first.signIn("ada");
      await first.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
      const budget = 0.305;
      const { id, key } = await first.rpc(
        "keys.create",
        { name: "k", total_budget_usd: budget, monthly_budget_usd: budget },
        token,
      );
      let keys: string[] = [key];
      const count = () => countServed({ gateways, keys }, 200);
      // The upstream uses all that it is given, so that ten are the most that can ever be served.
      expect(await count()).toBe(10);
      expect(servedUsd()).toBeLessThanOrEqual(budget);
      expect(await count()).toBe(0);
      await second.rpc(
        "keys.update",
        { key_id: id, total_budget_usd: 0.335, monthly_budget_usd: null },
        token,
      );
      expect(await count()).toBe(1);
      expect(servedUsd()).toBeLessThanOrEqual(0.335);
      await second.rpc("keys.update", { key_id: id, total_budget_usd: 0.1 }, token);
      expect(await Promise.all([0, 1, 2].map((i) => askDear({ gateways, keys }, i)))).toEqual([
        402, 402, 402,
      ]);

      const { id: group_id } = await first.rpc("group.create", { name: "lab" }, token);
      await first.rpc("group.credits.topup", { group_id, points: 100_000 }, token);
      await first.rpc("group.update", { group_id, member_budget_usd: budget }, token);
      const made = ["a", "b"].map((name) => first.rpc("keys.create", { name, group_id }, token));
      keys = (await Promise.all(made)).map((each) => each.key);
      const before = servedUsd();
      expect(await count()).toBe(10);
      expect(servedUsd() - before).toBeLessThanOrEqual(budget);
      await second.rpc("group.update", { group_id, member_budget_usd: 0.335 }, token);
      expect(await count()).toBe(1);
    } finally {
      await stop();
    }
  });
});
