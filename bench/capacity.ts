/**
 * `bun bench/capacity.ts [--requests 8000]`: what one request, one streamed token and one idle connection cost an
 * instance, Postgres and Redis when instances share them; the figures of docs/scaling.md. Starts everything that
 * it needs and ends it again. Takes about a minute.
 */
import { Database } from "bun:sqlite";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { freePort, startPostgres, startRedis } from "../scripts/lib/services.ts";
import type { LoadPlan, LoadReport } from "./lib/load.ts";
import { cpuUs, rssMb, startCommand, startServer, stopAll } from "./lib/processes.ts";

const ADMIN_TOKEN = "bench-admin-token-0123456789";
const LIMIT_RPM = 1_000_000;
const IDLE_CONNECTIONS = 2_000;
const REVOCATIONS = 50;
const POOL_POINTS = 1_000_000_000;
/** The journal is drained every 50 ms; by then what a load left behind is in the database. */
const SETTLED_MS = 1_500;

const { values } = parseArgs({ options: { requests: { type: "string", default: "8000" } } });
const requests = Number(values.requests);

interface Gateway {
  child: Bun.Subprocess;
  pid: number;
  port: number;
  url: string;
}

const dir = mkdtempSync(join(tmpdir(), "gateway-capacity-"));
const postgres = await startPostgres(dir);
const redis = await startRedis(dir);
const upstream = await startServer("upstream.ts");
const pricingFile = join(dir, "prices.json");
await Bun.write(pricingFile, JSON.stringify({ prices: [{ match: "bench", input: 1, output: 1 }] }));

async function untilReady(what: string, check: () => Promise<boolean>): Promise<void> {
  for (const deadline = Date.now() + 20_000; !(await check().catch(() => false)); await Bun.sleep(10))
    if (Date.now() > deadline) throw new Error(`${what} did not become ready`);
}

async function launch(name: string, shared: boolean): Promise<Gateway> {
  const port = await freePort();
  const child = startCommand([process.execPath, "packages/gateway/src/main.ts"], {
    BUN_CONFIG_MAX_HTTP_REQUESTS: "65336",
    SERVICE_PORT: String(port),
    SERVICE_DATA_DIR: join(dir, name),
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    SERVICE_JWT_SECRET: "one secret for all instances, 0123456789",
    SERVICE_API_RATE_LIMIT_RPM: String(LIMIT_RPM),
    SERVICE_PRICING_FILE: pricingFile,
    SERVICE_LOG_LEVEL: "warn",
    ...(shared && { SERVICE_DATABASE_URL: postgres.url, SERVICE_REDIS_URL: redis.url }),
  });
  const url = `http://127.0.0.1:${port}`;
  await untilReady("an instance", async () => (await fetch(`${url}/v1/health`)).ok);
  return { child, pid: child.pid, port, url };
}

async function rpc<T>({ url }: Gateway, method: string, params: unknown, bearer?: string): Promise<T> {
  const response = await fetch(`${url}/api/rpc`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(bearer && { authorization: `Bearer ${bearer}` }) },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  });
  const { result, error } = (await response.json()) as { result: T; error?: unknown };
  if (error) throw new Error(`${method}: ${JSON.stringify(error)}`);
  return result;
}

const CHAT = "/v1/chat/completions";
const body = (stream: boolean) =>
  JSON.stringify({ model: "bench", max_tokens: 100, stream, messages: [{ role: "user", content: "hi" }] });

async function load(plan: LoadPlan): Promise<LoadReport> {
  const child = Bun.spawn([process.execPath, "bench/lib/load.ts", JSON.stringify(plan)], {
    cwd: join(import.meta.dir, ".."),
    stdout: "pipe",
  });
  const report = JSON.parse(await new Response(child.stdout).text()) as LoadReport;
  if (report.errors > 0) throw new Error(`${report.errors} of ${report.requests} requests failed`);
  return report;
}

const sql = new Bun.SQL(postgres.url, { max: 1 });
const client = new Bun.RedisClient(redis.url);
const redisCommands = async () =>
  Number(/total_commands_processed:(\d+)/.exec(await client.send("INFO", ["stats"]))![1]);
const commits = async () =>
  Number((await sql.unsafe("SELECT xact_commit AS n FROM pg_stat_database WHERE datname = 'postgres'"))[0].n);

/** What the load cost each part, divided by `per`. */
async function measure(name: string, gateway: Gateway, plan: LoadPlan, per: "requests" | "events") {
  await load({ ...plan, requests: Math.ceil(plan.requests / 8) });
  await Bun.sleep(SETTLED_MS);
  const at = async () => ({
    gateway: cpuUs(gateway.pid),
    postgres: cpuUs(postgres.child.pid!),
    redis: cpuUs(redis.child.pid!),
    commands: await redisCommands(),
    commits: await commits(),
  });
  const before = await at();
  const report = await load(plan);
  await Bun.sleep(SETTLED_MS);
  const after = await at();
  const each = (key: keyof typeof before) => (after[key] - before[key]) / report[per];
  const us = (key: keyof typeof before) => `${each(key).toFixed(1)} µs`;
  console.log(
    `${name}, a ${per === "requests" ? "request" : "token"}: instance ${us("gateway")}, Postgres ${us("postgres")}, Redis ${us("redis")}` +
      ` (${each("commands").toFixed(2)} Redis commands, ${each("commits").toFixed(3)} commits); ${Math.round(report.requests / report.seconds)} requests/s, p50 ${Math.round(report.p50Us)} µs, p99 ${Math.round(report.p99Us)} µs`,
  );
}

async function prepare(gateway: Gateway) {
  const { access_token: token } = await rpc<{ access_token: string }>(gateway, "auth.register", {
    email: "bench@example.com",
    password: "bench password",
  });
  await rpc(
    gateway,
    "billing.plan.set",
    { user_email: "bench@example.com", tier: "enterprise" },
    ADMIN_TOKEN,
  );
  const { key } = await rpc<{ key: string }>(gateway, "keys.create", { name: "plain" }, token);
  const { id } = await rpc<{ id: string }>(gateway, "group.create", { name: "bench" }, token);
  await rpc(gateway, "group.credits.topup", { group_id: id, points: POOL_POINTS }, token);
  const { key: groupKey } = await rpc<{ key: string }>(
    gateway,
    "keys.create",
    { name: "g", group_id: id },
    token,
  );
  await fetch(`${gateway.url}/api/admin/backends`, {
    method: "POST",
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify({ type: "external", url: `http://127.0.0.1:${upstream.port}` }),
  });
  await untilReady("the backend", async () =>
    (await (await fetch(`${gateway.url}/v1/models`)).text()).includes('"bench"'),
  );
  return { token, key, groupKey };
}

async function idleConnections(name: string, gateway: Gateway, open: (i: number) => Promise<() => void>) {
  const before = rssMb(gateway.pid);
  const closers: (() => void)[] = [];
  for (let i = 0; i < IDLE_CONNECTIONS; i += 100) {
    closers.push(...(await Promise.all(Array.from({ length: 100 }, (_, n) => open(i + n)))));
  }
  await Bun.sleep(SETTLED_MS);
  const kilobytes = ((rssMb(gateway.pid) - before) * 1024) / IDLE_CONNECTIONS;
  console.log(`${IDLE_CONNECTIONS} idle ${name}: ${kilobytes.toFixed(1)} KB each`);
  for (const close of closers) close();
  await Bun.sleep(SETTLED_MS);
}

async function openSocket(gateway: Gateway, head: string): Promise<() => void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const socket = await Bun.connect({
    hostname: "127.0.0.1",
    port: gateway.port,
    socket: { data: () => resolve() },
  });
  socket.write(head);
  await promise;
  return () => socket.end();
}

/** From the answer of keys.revoke on one instance to the first refusal on another. */
async function revocations(a: Gateway, b: Gateway, token: string): Promise<void> {
  const chat = (key: string) =>
    fetch(b.url + CHAT, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: body(false),
    });
  const times: number[] = [];
  for (let i = 0; i < REVOCATIONS; i++) {
    const { id, key } = await rpc<{ id: string; key: string }>(a, "keys.create", { name: `r${i}` }, token);
    await (await chat(key)).text();
    await rpc(a, "keys.revoke", { key_id: id }, token);
    const revokedAt = performance.now();
    for (;;) {
      const response = await chat(key);
      await response.text();
      if (response.status === 401) break;
    }
    times.push(performance.now() - revokedAt);
  }
  times.sort((x, y) => x - y);
  const [median, most] = [times[REVOCATIONS / 2]!, times.at(-1)!];
  console.log(
    `revoked on one instance, refused on the other: ${median.toFixed(1)} ms median, ${most.toFixed(1)} ms at most`,
  );
}

const RAISE_LIMIT = `UPDATE billing_tiers SET rpm = ${LIMIT_RPM} WHERE name = 'enterprise'`;

async function stop({ child }: Gateway): Promise<void> {
  child.kill();
  await child.exited;
}

/** The same requests on one process with the embedded database, for comparison. */
async function measureAlone(): Promise<void> {
  const first = await launch("alone", false);
  const { key, groupKey } = await prepare(first);
  await stop(first);
  const db = new Database(join(dir, "alone", "gateway.sqlite"));
  db.run(RAISE_LIMIT);
  db.close();
  const gateway = await launch("alone", false);
  const { port } = gateway;
  await untilReady("the backend", async () =>
    (await (await fetch(`${gateway.url}/v1/models`)).text()).includes('"bench"'),
  );
  await measure("alone, unlimited tier", gateway, { ...plan(key, false), port }, "requests");
  await measure("alone, paid in points", gateway, { ...plan(groupKey, false), port }, "requests");
  await measure("alone, 200 streams", gateway, { ...plan(groupKey, true), port }, "events");
  await stop(gateway);
}

const plan = (key: string, stream: boolean): Omit<LoadPlan, "port"> => ({
  path: CHAT,
  key,
  body: body(stream),
  connections: stream ? 200 : 32,
  requests: stream ? 800 : requests,
  stream,
});

try {
  await measureAlone();
  // The schema is made by the first start, and the limit is known to the next ones.
  await stop(await launch("first", true));
  await sql.unsafe(RAISE_LIMIT);
  const [a, b] = [await launch("a", true), await launch("b", true)];
  const { token, key, groupKey } = await prepare(a);
  const { port } = a;
  await measure("shared, unlimited tier", a, { ...plan(key, false), port }, "requests");
  await measure("shared, paid in points", a, { ...plan(groupKey, false), port }, "requests");
  await measure("shared, 200 streams", a, { ...plan(groupKey, true), port }, "events");
  const get = (path: string, rest = "") => `GET ${path} HTTP/1.1\r\nhost: x\r\n${rest}\r\n`;
  await idleConnections("event streams", b, () =>
    openSocket(b, get(`/api/rpc/events?session=${crypto.randomUUID()}`)),
  );
  const upgrade =
    "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
  await idleConnections("WebSockets", b, () => openSocket(b, get("/api/rpc", upgrade)));
  await idleConnections("HTTP connections", b, () => openSocket(b, get("/v1/health")));
  await revocations(a, b, token);
} finally {
  client.close();
  await sql.close();
  await stopAll();
  redis.child.kill("SIGKILL");
  postgres.child.kill("SIGKILL");
  rmSync(dir, { recursive: true, force: true });
}
