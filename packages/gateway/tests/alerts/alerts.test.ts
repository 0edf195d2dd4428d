import { expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { bootGateway } from "@model-gateway/testing/gateway.ts";
import { startSmtp } from "@model-gateway/testing/smtp.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { Alerts } from "../../src/rooms/alerts/index.ts";
import { type Database, insertRow } from "../../src/storage/contract.ts";
import { DatabaseLeases } from "../../src/storage/leases.ts";

const SECRET = "0123456789abcdef";
const AT = "2026-11-01T00:00:00.000Z";

/** Instances that look at the same world and post to the same receiver. */
function openWorld(db: Database) {
  const clock = new ManualClock();
  const posted: { message: string; kind: string; level: number; id: string; url: string }[] = [];
  const hits = new Map<string, number>();
  const world = {
    clock,
    posted,
    hits,
    said: () => posted.splice(0).map(({ message }) => message),
    status: 200,
    stalledSeconds: 0,
    backend: { state: "Healthy", detail: null as string | null },
    node: { online: true },
    instance: (name: string) =>
      new Alerts({
        db,
        clock,
        log: silentLog,
        ids: randomIds,
        leases: new DatabaseLeases({ db, clock, instance: name }),
        counter: {
          hit: async ([limit]: { key: string; max: number }[]) => {
            const { key, max } = limit!;
            hits.set(key, (hits.get(key) ?? 0) + 1);
            return hits.get(key)! > max ? { index: 0, retryAfterMs: 1 } : null;
          },
        } as never,
        settings: {
          ...{
            alertWebhookUrl: "http://hook.test",
            alertWebhookSecret: SECRET,
            publicUrl: "https://gate.test/llm/",
          },
          ...{ alertSmtpUrl: null, alertMailFrom: null, alertMailTo: [] },
        },
        post: async (_, { body }) => {
          if (world.status === 200) posted.push(JSON.parse(String(body)));
          return new Response("", { status: world.status });
        },
        routing: {
          get entries() {
            return [{ config: { name: "rack" }, persisted: true, probedAtMs: 1, ...world.backend }] as never;
          },
        },
        agents: {
          list: async () => [{ agent_id: "n1", name: "gpu-1", heartbeat_at: AT, ...world.node }] as never,
        },
        metering: {
          get figures() {
            return { stalled_seconds: world.stalledSeconds } as never;
          },
        },
      }),
  };
  return world;
}

onEachDatabase("alerts", (fresh) => {
  test("a backend and a node that are gone are told once, by whichever instance, and again when back", () =>
    withDatabase(fresh, async (db) => {
      const world = openWorld(db);
      const [one, two] = [world.instance("one"), world.instance("two")];
      await one.look();
      world.backend = { state: "Unhealthy", detail: "connection refused" };
      await one.look();
      expect(world.said()).toEqual([]);
      await one.look();
      await two.look();
      expect(world.said()).toEqual(["The backend rack is down: connection refused"]);
      // Another instance takes over, as after a restart.
      world.clock.advance(600_000);
      world.node.online = false;
      for (const each of [one, two, one, two]) await each.look();
      expect(world.said()).toEqual([`The node gpu-1 is gone since ${AT}`]);
      world.backend = { state: "Healthy", detail: null };
      world.node.online = true;
      for (const each of [one, two, one, two]) await each.look();
      expect(world.said()).toEqual(["The backend rack answers again", "The node gpu-1 is back"]);
    }));

  test("a receiver that is away is told later, once, under the same id", () =>
    withDatabase(fresh, async (db) => {
      const world = openWorld(db);
      const one = world.instance("one");
      world.backend = { state: "Unhealthy", detail: "gone" };
      world.status = 503;
      for (let n = 0; n < 4; n++) await one.look();
      const [row] = await db.all<{ id: string }>("SELECT id FROM alerts WHERE key = 'backend:rack'");
      world.status = 200;
      for (let n = 0; n < 3; n++) await one.look();
      expect(world.posted).toMatchObject([
        { id: row!.id, kind: "backend", level: 100, url: "https://gate.test/llm/models?open=rack" },
      ]);
    }));

  test("budgets, wallets and pools are told at 80 and at 100 percent, and anew when they were filled", () =>
    withDatabase(fresh, async (db) => {
      const world = openWorld(db);
      const one = world.instance("one");
      const [user, group, key] = [randomIds.uuid(), randomIds.uuid(), randomIds.uuid()];
      const common = { name: "x", created_at: AT };
      const person = { ...common, password_hash: "", is_admin: false };
      await insertRow(db, "users", { ...person, id: user, email: "ada@x" });
      const rules = { enforce_model_allowlist: false, description: "" };
      await insertRow(db, "user_groups", {
        ...common,
        ...rules,
        id: group,
        name: "Analysts",
        owner_id: user,
      });
      const budget = { monthly_budget_nano_usd: 10e9, active: true, project: "" };
      const used = { requests: 1, last_used_ms: 1, month: "2026-11", total_cost_nano_usd: 0 };
      const addKey = async (id: string, user_id: string, name: string, month_cost_nano_usd: number) => {
        const secret = { key_hash: id, key_prefix: "p" };
        await insertRow(db, "api_keys", { ...common, ...budget, ...secret, id, user_id, name });
        await insertRow(db, "key_spend", { ...used, key_id: id, month_cost_nano_usd });
      };
      await addKey(key, user, "ci", 5e9);
      const account = { remainder: 0, ever_credited: true, version: 1, balance: 100 };
      await insertRow(db, "ledger_accounts", { ...account, id: `user:${user}`, type: "user" });
      await insertRow(db, "ledger_accounts", {
        ...account,
        id: `group:${group}`,
        type: "group",
        balance: 500,
      });
      const spent = (nanoUsd: number) => db.run("UPDATE key_spend SET month_cost_nano_usd = $1", [nanoUsd]);
      const balance = (type: string, points: number) =>
        db.run("UPDATE ledger_accounts SET balance = $1 WHERE type = $2", [points, type]);
      const links: string[] = [];
      const look = async () => {
        await one.look();
        await one.look();
        links.splice(0, links.length, ...world.posted.map(({ url }) => url));
        return world.said();
      };

      expect(await look()).toEqual([]);
      await spent(8e9);
      await balance("user", 20);
      await balance("group", 101);
      expect(await look()).toEqual([
        "The key ci of ada@x has used 80 % of its monthly budget: $8.00 of $10.00",
        "The wallet of ada@x has used 80 % of its points: 20 of 100 are left",
      ]);
      const users = `https://gate.test/llm/users/${user}`;
      expect(links).toEqual([`${users}?open=${key}`, users]);
      await spent(11e9);
      await balance("user", 0);
      await balance("group", 100);
      expect((await look()).sort()).toEqual([
        "The key ci of ada@x has used 100 % of its monthly budget: $11.00 of $10.00",
        "The pool of the group Analysts has used 80 % of its points: 100 of 500 are left",
        "The wallet of ada@x has used 100 % of its points: 0 of 100 are left",
      ]);
      // Of one person ten in all; others are told as before.
      const other = randomIds.uuid();
      await insertRow(db, "users", { ...person, id: other, email: "eve@x" });
      for (let n = 0; n < 9; n++) await addKey(randomIds.uuid(), user, `k${n}`, 10e9);
      await addKey(randomIds.uuid(), other, "own", 10e9);
      const told = await look();
      expect(told.filter((message) => message.includes("ada@x"))).toHaveLength(5);
      expect(told.filter((message) => message.includes("The key own of eve@x"))).toHaveLength(1);
      world.hits.clear();
      // The next month, and points again.
      world.clock.advance(20 * 86_400_000);
      await balance("user", 50);
      expect(await look()).toEqual([]);
      await balance("user", 10);
      expect(await look()).toEqual(["The wallet of ada@x has used 80 % of its points: 10 of 50 are left"]);
    }));
});

test("a journal that cannot be settled is told once by all instances, also without the database", async () => {
  const away = new Proxy({} as Database, {
    get: () => () => {
      throw new Error("the database is away");
    },
  });
  const world = openWorld(away);
  const instances = [world.instance("one"), world.instance("two")];
  world.stalledSeconds = 61;
  for (const instance of [...instances, ...instances]) await instance.look();
  expect(world.posted.map(({ url }) => url)).toEqual([
    "https://gate.test/llm/docs/operators-guide#when-redis-or-postgres-is-away",
  ]);
  expect(world.said()).toEqual([expect.stringContaining("Usage cannot be written to the database")]);
});

test("a test alert goes out by mail and to the webhook, signed; what fails says why", async () => {
  const smtp = await startSmtp();
  let answers = 200;
  let received: { headers: Headers; body: string } | undefined;
  const hook = Bun.serve({
    port: 0,
    async fetch(request) {
      received = { headers: request.headers, body: await request.text() };
      return new Response("", { status: answers });
    },
  });
  const gateway = await bootGateway({
    config: {
      alertWebhookUrl: hook.url.href,
      alertWebhookSecret: SECRET,
      alertSmtpUrl: `smtp://127.0.0.1:${smtp.port}`,
      alertMailFrom: "gateway@example.com",
      alertMailTo: ["ada@example.com"],
    },
  });
  try {
    const admin = await gateway.signIn("admin");
    const other = await gateway.signIn("other");
    expect(await gateway.rpc("alerts.test", {}, admin)).toEqual([
      { to: "webhook", ok: true, detail: null },
      { to: "mail", ok: true, detail: null },
    ]);
    const { headers, body } = received!;
    const signed = `${headers.get("webhook-id")}.${headers.get("webhook-timestamp")}.${body}`;
    const expected = createHmac("sha256", SECRET).update(signed).digest("base64");
    expect(headers.get("webhook-signature")).toBe(`v1,${expected}`);
    expect(JSON.parse(body)).toMatchObject({ kind: "test", id: headers.get("webhook-id") });
    expect(smtp.mails).toMatchObject([{ to: ["ada@example.com"], text: expect.stringContaining("test") }]);
    answers = 500;
    smtp.stop();
    const failed = await gateway.rpc<{ ok: boolean; detail: string }[]>("alerts.test", {}, admin);
    expect(failed).toMatchObject([{ ok: false, detail: "the webhook answered 500" }, { ok: false }]);
    expect(JSON.stringify(failed)).not.toContain(SECRET);
    expect((await gateway.call("alerts.test", {}, other)).error.message).toContain("administrators");
  } finally {
    await gateway.stop();
    hook.stop(true);
  }
});
