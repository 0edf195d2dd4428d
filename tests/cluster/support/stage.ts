import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type PostgresServer, startPostgres } from "@model-gateway/testing/services.ts";
import { until } from "@model-gateway/testing/until.ts";
import { type FakeUpstream, startUpstream } from "@model-gateway/testing/upstream.ts";
import { verifyLedger } from "../../../packages/gateway/src/rooms/ledger/index.ts";
import type { Database } from "../../../packages/gateway/src/storage/contract.ts";
import { openStorage } from "../../../packages/gateway/src/storage/index.ts";
import { type OwnRedis, startOwnRedis } from "../../../packages/gateway/tests/instances/support.ts";
import { ADMIN_TOKEN, GENEROUS_RPM, Instance } from "./cluster.ts";

/** The upstream reports 9 prompt and 4 completion tokens: 1.3 points at this price. */
const PRICES = { prices: [{ match: "m", input: 1_000, output: 1_000 }] };
const POOL_POINTS = 1_000_000;

export interface StageOptions {
  instances: number;
  env?: Record<string, string>;
}

/** Instances with a Postgres, a Redis and an upstream of their own, which may be taken away. */
export interface Stage {
  instances: Instance[];
  upstream: FakeUpstream;
  redis: OwnRedis;
  /** Stops Postgres; the returned function starts it again. */
  stopPostgres(): Promise<() => Promise<void>>;
  db(): Promise<Database>;
  /** An administrator's token, a member's group key whose pool pays, and the group. */
  admin: string;
  groupKey: string;
  groupId: string;
  end(): Promise<void>;
}

export async function openStage({ instances: count, env = {} }: StageOptions): Promise<Stage> {
  const cleanups: (() => unknown)[] = [];
  const end = async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  };
  try {
    const dir = mkdtempSync(join(tmpdir(), "gateway-stage-"));
    cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
    let postgres: PostgresServer = await startPostgres(dir);
    cleanups.push(() => postgres.child.kill("SIGKILL"));
    const redis = await startOwnRedis();
    cleanups.push(() => redis.kill());
    const upstream = startUpstream();
    cleanups.push(() => upstream.stop());
    const pricingFile = join(dir, "prices.json");
    await Bun.write(pricingFile, JSON.stringify(PRICES));
    const databaseUrl = postgres.url;
    const db = () => openStorage({ dataDir: dir, databaseUrl });
    const prepared = await db();
    await prepared.run("UPDATE billing_tiers SET rpm = $1 WHERE name IN ('pro', 'enterprise')", [
      GENEROUS_RPM,
    ]);
    // Whoever is on this tier has nothing but points.
    await prepared.run(
      "UPDATE billing_tiers SET monthly_usd_quota = 0, monthly_token_quota = 0 WHERE name = 'pro'",
    );
    await prepared.close();
    const instances = Array.from(
      { length: count },
      () =>
        new Instance({
          databaseUrl,
          redisUrl: redis.url,
          env: { SERVICE_PRICING_FILE: pricingFile, ...env },
        }),
    );
    cleanups.push(() => Promise.all(instances.map((instance) => instance.remove())));
    await Promise.all(instances.map((instance) => instance.start()));
    return {
      instances,
      upstream,
      redis,
      ...(await populate(instances, upstream)),
      db,
      async stopPostgres() {
        const ended = new Promise((resolve) => postgres.child.once("exit", resolve));
        postgres.child.kill("SIGINT");
        await ended;
        return async () => {
          postgres = await postgres.restart();
        };
      },
      end,
    };
  } catch (error) {
    await end();
    throw error;
  }
}

/** An administrator, a backend, and a group whose pool pays for its key. */
async function populate(
  instances: readonly Instance[],
  upstream: FakeUpstream,
): Promise<Pick<Stage, "admin" | "groupKey" | "groupId">> {
  const first = instances[0]!;
  const admin = await first.signUp("ada");
  await first.rpc("billing.plan.set", { user_email: "ada@example.com", tier: "enterprise" }, ADMIN_TOKEN);
  const backend = { type: "external_api", name: "up", url: `${upstream.url}/v1` };
  await first.admin("POST", "/api/admin/backends", backend);
  const { groupId, groupKey } = await openPool(first, { admin, owner: admin, points: POOL_POINTS });
  for (const instance of instances)
    await until("every instance routes to the backend", async () => (await instance.models()).includes("m"));
  return { admin, groupKey, groupId };
}

/** A group with so many points, and a key whose requests they pay for. */
export async function openPool(
  instance: Instance,
  { admin, owner, points }: { admin: string; owner: string; points: number },
) {
  const { id: groupId } = await instance.rpc("group.create", { name: "team" }, owner);
  await instance.rpc("group.credits.topup", { group_id: groupId, points }, admin);
  const { key: groupKey } = await instance.rpc("keys.create", { name: "load", group_id: groupId }, owner);
  return { groupId: groupId as string, groupKey: groupKey as string };
}

/** What the pool has left, and what the usage rows of its group say that it paid. */
export async function pointsOf(stage: Stage, groupId: string): Promise<{ left: number; paid: number }> {
  const db = await stage.db();
  try {
    const account = await db.get<{ balance: number }>("SELECT balance FROM ledger_accounts WHERE id = $1", [
      `group:${groupId}`,
    ]);
    const rows = await db.get<{ paid: number | null }>(
      "SELECT CAST(SUM(u.points) AS INTEGER) AS paid FROM usage_records u JOIN api_keys k ON k.id = u.key_id WHERE k.group_id = $1",
      [groupId],
    );
    return { left: Number(account?.balance), paid: Number(rows?.paid ?? 0) };
  } finally {
    await db.close();
  }
}

/** Waits until every request of the list has its row; then each has exactly one, and the books are in order. */
export async function settleAccounts(stage: Stage, requestIds: readonly string[]): Promise<void> {
  const db = await stage.db();
  try {
    const missing = async () => {
      const rows = await db.all<{ id: string }>("SELECT id FROM usage_records");
      const found = new Set(rows.map(({ id }) => id));
      return requestIds.filter((id) => !found.has(id));
    };
    await until("every answered request has its usage row", async () => (await missing()).length === 0);
    const { problems } = await verifyLedger(db);
    if (problems.length > 0) throw new Error(problems.map(({ message }) => message).join("; "));
  } finally {
    await db.close();
  }
}
