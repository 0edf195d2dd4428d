import { describe, expect, test } from "bun:test";
import { freshDatabase } from "@model-gateway/testing/databases.ts";
import { everywhere } from "@model-gateway/testing/deployment.ts";
import { bootGateway, PASSWORD } from "@model-gateway/testing/gateway.ts";
import { Line } from "@model-gateway/testing/line.ts";
import { until } from "@model-gateway/testing/until.ts";
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import { PostgresDatabase } from "../../src/storage/postgres/database.ts";
import { registerBackend } from "../instances/support.ts";

describe.if(process.env.TEST_POSTGRES_URL !== undefined)("a Postgres that does not answer", () => {
  test.concurrent("known keys are served, probes are answered, everything else fails instead of waiting", async () => {
    const { options, drop } = await freshDatabase("postgres");
    const { line, url: databaseUrl } = await Line.to(options.databaseUrl!);
    const upstream = startUpstream();
    const gateway = await bootGateway({ config: { databaseUrl } });
    const chat = (key: string) =>
      fetch(`${gateway.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }] }),
      });
    try {
      const token = await gateway.signIn("ada");
      await registerBackend(gateway, { type: "external_api", name: "up", url: `${upstream.url}/v1` });
      await until("a model is served", () => gateway.app.rooms.routing.modelCount > 0);
      const { key: known } = await gateway.rpc("keys.create", { name: "known" }, token);
      const { key: unknown } = await gateway.rpc("keys.create", { name: "never used" }, token);
      expect(await everywhere(async () => (await chat(known)).status === 200)).toBe(true);

      line.set("stall");
      expect((await chat(known)).status).toBe(200);
      expect((await fetch(`${gateway.url}/healthz`)).status).toBe(200);
      expect((await fetch(`${gateway.url}/readyz`)).status).toBe(200);
      const [refused, login] = await Promise.all([
        chat(unknown),
        gateway.call("auth.login", { email: "ada@example.com", password: PASSWORD }),
      ]);
      expect(refused.status).toBe(503);
      expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
      expect(login.error.message).toContain("database cannot be used right now");
      expect(login.error.data?.retry_after).toBeGreaterThan(0);
      expect((await chat(known)).status).toBe(200);

      line.set("pass");
      await until("the key is known again", async () => (await chat(unknown)).status === 200);
      const isDrained = async () => {
        const ready = await fetch(`${gateway.url}/readyz`);
        return ((await ready.json()) as { usage_journal: { rows: number } }).usage_journal.rows === 0;
      };
      await until("the journal is drained", () => everywhere(isDrained));
      const db = await PostgresDatabase.open(options.databaseUrl!);
      const counted = await db.get<{ n: number }>("SELECT COUNT(*) AS n FROM usage_records");
      await db.close();
      expect(counted?.n).toBe(upstream.requests.length);
    } finally {
      await gateway.stop();
      upstream.stop();
      line.close();
      await drop();
    }
  }, 60_000);

  test.concurrent("one that is slow is waited for", async () => {
    const db = await PostgresDatabase.open(process.env.TEST_POSTGRES_URL!);
    expect(await db.get<{ n: number }>("SELECT 1 AS n FROM pg_sleep(8)")).toEqual({ n: 1 });
    await db.close();
  }, 60_000);

  test.concurrent("a transaction that stands still gives its locks back", async () => {
    const stuck = await PostgresDatabase.open(process.env.TEST_POSTGRES_URL!, { idleTransactionMs: 200 });
    const other = await PostgresDatabase.open(process.env.TEST_POSTGRES_URL!);
    const name = crypto.randomUUID();
    const locked = Promise.withResolvers<void>();
    const released = Promise.withResolvers<void>();
    const standing = stuck
      .transaction(async (tx) => {
        await tx.lock(name);
        locked.resolve();
        await released.promise;
      })
      .then(
        () => "committed",
        () => "ended by the server",
      );
    await locked.promise;
    await other.transaction((tx) => tx.lock(name));
    released.resolve();
    expect(await standing).toBe("ended by the server");
    await Promise.all([stuck.close(), other.close()]);
  }, 60_000);
});
