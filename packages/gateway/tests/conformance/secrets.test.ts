/** Secrets are shown where the contract says so, once, and are found nowhere else: answers, log, metrics, database. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { onEachDatabase, type TestDatabase } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN, bootGateway, PASSWORD } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { createLog } from "../../src/kernel/log.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const UPSTREAM_KEY = "sk-canary-0123456789abcdef";

/** Every byte of the data directory, apart from the signing key, whose place it is. */
function filesOf(dir: string): string {
  return readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name !== "jwt-secret")
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), "latin1"))
    .join("\n");
}

onEachDatabase("secrets", (fresh, kind) => {
  let database: TestDatabase;
  let bench: InferenceBench;
  const lines: string[] = [];

  beforeAll(async () => {
    database = await fresh();
    const { dataDir, databaseUrl } = database.options;
    const log = createLog({ level: "debug", format: "json", write: (line) => lines.push(line) });
    bench = await bootInference({ config: { dataDir, databaseUrl }, overrides: { log } });
  });
  afterAll(async () => {
    await bench.stop();
    await database.drop();
  });

  async function everythingStored(): Promise<string> {
    const files = filesOf(database.options.dataDir);
    if (kind === "sqlite") return files;
    const { db } = bench.app.rooms.usage.store;
    const tables = await db.all<{ name: string }>(
      "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'public'",
    );
    const rows = await Promise.all(tables.map(({ name }) => db.all(`SELECT * FROM ${name}`)));
    return files + JSON.stringify(rows);
  }

  test("stay where they belong", async () => {
    const { rpc, call, token } = bench;
    const session = await rpc("auth.login", { email: "ada@example.com", password: PASSWORD });
    const { key, id: keyId } = await rpc("keys.create", { name: "canary" }, token);
    const { token: agentToken } = await rpc("agents.register", { machine_name: "n", version: "1" }, token);
    const { id: groupId } = await rpc("group.create", { name: "lab" }, token);
    const { token: invitation } = await rpc("group.invite.create", { group_id: groupId }, token);
    const secrets = {
      UPSTREAM_KEY,
      ADMIN_TOKEN,
      PASSWORD,
      key,
      access: session.access_token,
      refresh: session.refresh_token,
      agentToken,
      invitation,
    };

    const seen: string[] = [];
    const see = async (answer: Response | Promise<Response>) => seen.push(await (await answer).text());
    const keyed = { name: "keyed", type: "external", url: bench.upstream.url, api_key: UPSTREAM_KEY };
    await bench.addBackend(keyed);
    // An upstream that says the key back, in every place where it can.
    const chat = (body: object) =>
      bench.chat({ provider: "keyed", ...body }, { headers: { authorization: `Bearer ${key}` } });
    await see(chat({}));
    expect(bench.upstream.requests.at(-1)!.headers.authorization).toBe(`Bearer ${UPSTREAM_KEY}`);
    expect(JSON.stringify(bench.upstream.requests)).not.toContain(key);
    bench.upstream.answer((_, reply) =>
      reply.json({ error: { message: `Incorrect API key provided: ${UPSTREAM_KEY}` } }, 401),
    );
    for (const stream of [false, true]) await see(chat({ stream }));
    bench.upstream.listing((_, reply) => reply.json({ error: `bad key ${UPSTREAM_KEY}` }, 401));
    await see(bench.admin("POST", "/backends", keyed));
    await see(bench.admin("POST", "/backends", { type: UPSTREAM_KEY.slice(0, 3), api_key: UPSTREAM_KEY }));
    await see(bench.admin("POST", "/backends", { api_key: [UPSTREAM_KEY] }));
    for (const path of ["/backends", "/aliases"]) await see(bench.admin("GET", path));
    await see(bench.admin("POST", "/usage/query", { include_records: true }));
    for (const path of ["/metrics", "/v1/models", "/v1/health", "/readyz", "/api/openrpc.json"])
      await see(fetch(`${bench.url}${path}`));
    for (const method of ["auth.me", "keys.list", "agents.list", "group.list", "usage.list", "billing.plan"])
      seen.push(JSON.stringify(await call(method, {}, token)));
    seen.push(JSON.stringify(await call("group.get", { group_id: groupId }, token)));
    // Mistakes with secrets in them.
    seen.push(JSON.stringify(await call("auth.login", { email: "ada@example.com", password: [PASSWORD] })));
    seen.push(
      JSON.stringify(await call("auth.refresh", { refresh_token: { token: session.refresh_token } })),
    );
    seen.push(JSON.stringify(await call("keys.revoke", { key_id: keyId }, token)));
    await see(fetch(`${bench.url}/v1/models?token=${session.access_token}`));
    await see(fetch(`${bench.url}/api/rpc/events?session=&token=${session.access_token}`));

    const stored = await everythingStored();
    for (const [name, secret] of Object.entries(secrets)) {
      expect({ name, answered: seen.filter((text) => text.includes(secret)) }).toEqual({
        name,
        answered: [],
      });
      expect({ name, logged: lines.filter((line) => line.includes(secret)) }).toEqual({ name, logged: [] });
      expect({ name, stored: stored.includes(secret) }).toEqual({ name, stored: false });
    }
    expect(stored).toContain("keyed");
    expect(stored).toContain("ada@example.com");
  });

  test("in the addresses of upstreams are shown to nobody", async () => {
    const { call, token } = bench;
    const [password, parameter] = ["pw-in-an-address", "tok-in-an-address"];
    bench.upstream.listing((_, reply) => reply.json({ hello: "no listing" }));
    const at = (scheme: string) =>
      `${scheme}://user:${password}@127.0.0.1:${bench.upstream.port}/?access_token=${parameter}&v=2`;
    for (const [type, url] of [
      ["external", at("http")],
      ["engine", at("ws")],
      ["cloud-realtime", at("ws")],
    ]) {
      await bench.admin("POST", "/backends", {
        name: `at-${type}`,
        type,
        url,
        models: [type],
        capabilities: [],
      });
    }
    const shown = async () => (await bench.admin("GET", "/backends")).text();
    await until(
      "probed",
      async () => (JSON.stringify(await bench.backends()).match(/not probed yet/g) ?? []).length === 0,
    );
    const seen = [
      await shown(),
      JSON.stringify(await call("realtime.start", { model: "cloud-realtime" }, token)),
      JSON.stringify(await call("system.activity", {}, token)),
      await (await bench.chat({ model: "external" })).text(),
      await (await bench.chat({ model: "engine" })).text(),
      ...lines,
    ].join("\n");
    expect(seen).toContain("could not be opened");
    expect(seen).toContain("access_token=[redacted]&v=2");
    expect(seen).not.toContain(password);
    expect(seen).not.toContain(parameter);
  });

  test("a sealed key is there after a restart", async () => {
    const { url } = bench.upstream;
    await bench.admin("POST", "/backends", { name: "kept", type: "external", url, api_key: UPSTREAM_KEY });
    const { dataDir, databaseUrl } = database.options;
    const second = await bootGateway({ dataDir, config: { dataDir, databaseUrl } });
    const kept = second.app.rooms.routing.entries.find(({ config }) => config.name === "kept");
    await second.stop();
    expect(kept?.config.apiKey).toBe(UPSTREAM_KEY);
  });
});
