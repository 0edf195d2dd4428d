import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "@model-gateway/testing/services.ts";
import { RUNTIME_OPTIONS } from "../../packages/cli/src/service/runtime.ts";
import { openStorage } from "../../packages/gateway/src/storage/index.ts";
import { seedUsage } from "../growth-seed.ts";
import { startCommand, stop, untilReady } from "./processes.ts";
import { folder, type Target } from "./targets.ts";

export const ADMIN_TOKEN = "bench-admin-token-0123456789";
/** Far above what a load test sends, so that every limit is checked and none refuses. */
const LIMIT_RPM = 100_000_000;
/** The same for what tiers limit. Without a quota, tokens would not be counted before a request is sent. */
export const RAISE_TIERS = `UPDATE billing_tiers
  SET rpm = ${LIMIT_RPM}, monthly_usd_quota = 1000000, monthly_token_quota = 1000000000000`;
export const POOL_POINTS = 1_000_000_000;
export const UPSTREAM = "upstream";
/** Registrations from one address are limited. */
const ACCOUNTS = 8;
const KEYS_PER_ACCOUNT = 50;
const pricingFile = join(folder, "prices.json");
writeFileSync(pricingFile, JSON.stringify({ prices: [{ match: "bench", input: 1, output: 1 }] }));

export interface GatewayOptions {
  upstreamPort: number;
  /** Names its data directory. */
  name: string;
  /** Usage rows that it has from earlier; the caller of the measurement made a fifth of them. */
  history?: number;
  /** Postgres and Redis, instead of SQLite and nothing. */
  shared?: { databaseUrl: string; redisUrl: string };
  /** Processes; one unless given. */
  workers?: number;
  /** The arguments with which Bun runs it; the source unless given. */
  program?: readonly string[];
  /** Environment variables besides those of `gatewaySettings`. */
  settings?: Readonly<Record<string, string>>;
}

export interface GatewayTarget extends Target {
  url: string;
  accessToken: string;
  /** Keys of several accounts, and keys of their groups, whose requests are paid in points from a pool. */
  keys: string[];
  groupKeys: string[];
}

const dataDirOf = (name: string) => join(folder, name);

export async function post(url: string, body: unknown, bearer?: string): Promise<Record<string, string>> {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...(bearer && { authorization: `Bearer ${bearer}` }) },
    body: JSON.stringify(body),
  });
  const answer = (await response.json()) as { result?: Record<string, string>; error?: unknown };
  if (answer.error) throw new Error(`${url}: ${JSON.stringify(answer.error)}`);
  return answer.result ?? {};
}

export const rpc = (url: string, method: string, params: unknown, bearer?: string) =>
  post(`${url}/api/rpc`, { jsonrpc: "2.0", id: 1, method, params }, bearer);

/** Everything on, and limits that are checked and refuse nobody. */
export const gatewaySettings = ({ port, dataDir }: { port: number; dataDir: string }) => ({
  ...RUNTIME_OPTIONS,
  SERVICE_PORT: String(port),
  SERVICE_DATA_DIR: dataDir,
  SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
  SERVICE_JWT_SECRET: "one secret for all instances, 0123456789",
  SERVICE_REGISTRATION_OPEN: "true",
  SERVICE_API_RATE_LIMIT_RPM: String(LIMIT_RPM),
  SERVICE_PRICING_FILE: pricingFile,
  SERVICE_LOG_LEVEL: "warn",
});

/** The service as it is started for real: keys, limits, metering and journal on. */
export async function launchGateway({
  name,
  shared,
  workers = 1,
  program = ["packages/gateway/src/main.ts"],
  settings = {},
}: Omit<GatewayOptions, "upstreamPort">) {
  mkdirSync(dataDirOf(name), { recursive: true });
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const beganAt = performance.now();
  const flags = process.env.BENCH_GATEWAY_FLAGS?.split(" ") ?? [];
  const { pid } = startCommand([process.execPath, ...flags, ...program], {
    ...gatewaySettings({ port, dataDir: dataDirOf(name) }),
    ...settings,
    ...(workers > 1 && { SERVICE_WORKERS: String(workers) }),
    ...(shared && { SERVICE_DATABASE_URL: shared.databaseUrl, SERVICE_REDIS_URL: shared.redisUrl }),
  });
  await untilReady("the gateway", async () => (await fetch(`${url}/v1/health`)).ok);
  if (workers > 1)
    await untilReady("its workers", async () =>
      (await (await fetch(`${url}/metrics`)).text()).includes(`gateway_worker_up{worker="${workers}"} 1`),
    );
  return { pid, port, url, startedMs: performance.now() - beganAt };
}

export async function signUp(url: string): Promise<{ email: string; accessToken: string }> {
  const email = `bench-${crypto.randomUUID()}@example.com`;
  const { access_token } = await rpc(url, "auth.register", { email, password: "bench password" });
  return { email, accessToken: access_token! };
}

async function createKeys(url: string, accessToken: string, params: object): Promise<string[]> {
  const keys: string[] = [];
  for (let i = 0; i < KEYS_PER_ACCOUNT; i++)
    keys.push((await rpc(url, "keys.create", { name: `bench ${i}`, ...params }, accessToken)).key!);
  return keys;
}

/** A user with keys, and a group whose pool pays for as many other ones. The first one administers the service. */
async function createAccount(url: string, admin?: string) {
  const { email, accessToken } = await signUp(url);
  const { id: userId } = await rpc(url, "auth.me", {}, accessToken);
  await rpc(url, "billing.plan.set", { user_email: email, tier: "enterprise" }, ADMIN_TOKEN);
  const { id: groupId } = await rpc(url, "group.create", { name: "bench" }, accessToken);
  await rpc(url, "group.credits.topup", { group_id: groupId, points: POOL_POINTS }, admin ?? accessToken);
  const keys = await createKeys(url, accessToken, {});
  return {
    userId: userId!,
    accessToken,
    keys,
    groupKeys: await createKeys(url, accessToken, { group_id: groupId }),
  };
}

/** Accounts with keys, and the upstream as backend. Unless an administrator is signed in, the first account is one. */
export async function populate(url: string, upstreamPort: number, admin?: string) {
  const accounts: Awaited<ReturnType<typeof createAccount>>[] = [];
  for (let i = 0; i < ACCOUNTS; i++)
    accounts.push(await createAccount(url, admin ?? accounts[0]?.accessToken));
  const backend = { type: "external", name: UPSTREAM, url: `http://127.0.0.1:${upstreamPort}` };
  await post(`${url}/api/admin/backends`, backend, ADMIN_TOKEN);
  const native = { name: "native", models: ["native"], dialects: ["messages", "responses"] };
  await post(`${url}/api/admin/backends`, { ...backend, ...native }, ADMIN_TOKEN);
  const { userId, accessToken } = accounts[0]!;
  // Those who ask take turns, as people do.
  const inTurns = (of: "keys" | "groupKeys") =>
    Array.from({ length: KEYS_PER_ACCOUNT }, (_, i) => accounts.map((account) => account[of][i]!)).flat();
  const keys = inTurns("keys");
  return { userId, accessToken, key: keys[0]!, keys, groupKeys: inTurns("groupKeys") };
}

/** What no method can set: the limit of a tier, and a history. */
async function prepareDatabase({ name, history, shared }: GatewayOptions, heavyUser: string): Promise<void> {
  const db = await openStorage({ dataDir: dataDirOf(name), databaseUrl: shared?.databaseUrl ?? null });
  await db.run(RAISE_TIERS);
  if (history) await seedUsage(db, history, { endMs: Date.now(), heavyUser });
  await db.close();
}

export async function startGateway(options: GatewayOptions): Promise<GatewayTarget> {
  const first = await launchGateway(options);
  const { userId, ...account } = await populate(first.url, options.upstreamPort);
  await stop(first.pid);
  await prepareDatabase(options, userId);
  const launched = await launchGateway(options);
  await untilReady("the backends", async () => {
    const listed = await (await fetch(`${launched.url}/v1/models`)).text();
    return ['"bench"', '"native"'].every((id) => listed.includes(id));
  });
  return { peer: "gateway", headers: "", share: 1, ...account, ...launched };
}
