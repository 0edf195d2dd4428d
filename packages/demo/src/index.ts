import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "@model-gateway/gateway/config.ts";
import type { UsageRow } from "@model-gateway/gateway/rooms/usage/index.ts";
import { startMemoryServer } from "@model-gateway/memory-server/server.ts";
import { z } from "zod";
import { COLLEAGUES, pastMonth } from "./history.ts";
import { startDemoModelServer } from "./model-server.ts";
import { DEMO_PRICES } from "./prices.ts";

const EMAIL = "demo@example.com";
const BACKEND_NAME = "demo";
const MODEL = "demo";
/** The demonstration keeps apart from real data: its backend points to a server that ends with it. */
const DATA_SUBDIR = "demo";
const CREDENTIALS_FILE = "demo-credentials.json";
const PRICES_FILE = "demo-prices.json";
const POOL_POINTS = 5_000;
const SHARE_POINTS = 800;
const ROUTABLE_WITHIN_MS = 10_000;
const ROUTABLE_POLL_MS = 50;

const secret = (byteCount: number) => randomBytes(byteCount).toString("base64url");
const Credentials = z.object({ email: z.string(), password: z.string(), key: z.string() });
type Credentials = z.output<typeof Credentials>;

export interface Demo {
  /** The given configuration, with the demonstration's own data directory, memory and admin token. */
  config: Config;
  /** Creates the user and the key on the first run and registers the model; call it once the service listens. */
  introduce(gatewayUrl: string, writePast: WritePast): Promise<DemoIntroduction>;
  stop(): Promise<void>;
}

/** What no call of the service can make: use in the past, and people who never signed up. */
export interface Past {
  usage: readonly UsageRow[];
  people: readonly { email: string; name: string }[];
}
export type WritePast = (past: Past) => Promise<void>;

export interface DemoIntroduction extends Credentials {
  adminToken: string;
  /** A command line that streams an answer when it is pasted. */
  curl: string;
  /** All of it for a person to read. */
  text: string;
}

/** Starts a model server and a memory server in this process, for a gateway that `introduce` then sets up. */
export function startDemo(config: Config): Demo {
  const dataDir = join(config.dataDir, DATA_SUBDIR);
  const models = startDemoModelServer();
  const memory = startMemoryServer({ dataDir, port: 0 });
  const adminToken = config.adminToken ?? secret(24);
  const pricingFile = config.pricingFile ?? join(dataDir, PRICES_FILE);
  if (!config.pricingFile) {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    writeFileSync(pricingFile, JSON.stringify({ prices: DEMO_PRICES }, null, 2));
  }
  return {
    config: {
      ...config,
      dataDir,
      // Embedded storage only: a shared database would keep pointing to this process's model.
      databaseUrl: null,
      redisUrl: null,
      registrationOpen: config.registrationOpen || null,
      memoryUrl: memory.url,
      adminToken,
      pricingFile,
    },
    async introduce(gatewayUrl, writePast) {
      const credentials = await account({ gatewayUrl, dataDir, adminToken, writePast });
      await register({ gatewayUrl, adminToken, modelUrl: models.url });
      return describe(gatewayUrl, { ...credentials, adminToken });
    },
    async stop() {
      await models.stop();
      await memory.stop();
    },
  };
}

async function post(url: string, body: unknown, bearer?: string): Promise<Record<string, unknown>> {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...(bearer && { authorization: `Bearer ${bearer}` }) },
    body: JSON.stringify(body),
  });
  const answer = (await response.json()) as Record<string, unknown>;
  if (!response.ok || answer.error)
    throw new Error(`the demonstration could not be set up: ${JSON.stringify(answer.error ?? answer)}`);
  return answer;
}

async function rpc<T>(gatewayUrl: string, method: string, params: object, bearer?: string): Promise<T> {
  const call = { jsonrpc: "2.0", id: 1, method, params };
  return (await post(`${gatewayUrl}/api/rpc`, call, bearer)).result as T;
}

/** The demonstration's account and key: made on the first run, kept in a file that only the owner reads. */
async function account({ gatewayUrl, dataDir, adminToken, writePast }: AccountOptions): Promise<Credentials> {
  const file = join(dataDir, CREDENTIALS_FILE);
  if (existsSync(file)) return Credentials.parse(JSON.parse(readFileSync(file, "utf8")));
  const password = secret(12);
  const session = await rpc<{ access_token: string; user: { id: string } }>(gatewayUrl, "auth.register", {
    email: EMAIL,
    password,
    name: "Demo",
  });
  const token = session.access_token;
  const made = await rpc<{ id: string; key: string; key_prefix: string }>(
    gatewayUrl,
    "keys.create",
    { name: "demo" },
    token,
  );
  const key = { id: made.id, prefix: made.key_prefix };
  await rpc(gatewayUrl, "billing.plan.set", { user_email: EMAIL, tier: "pro" }, adminToken);
  const usage = pastMonth({ userId: session.user.id, key, nowMs: Date.now() });
  await writePast({ usage, people: COLLEAGUES });
  await shareGroup(gatewayUrl, token);
  const credentials = { email: EMAIL, password, key: made.key };
  writeFileSync(file, `${JSON.stringify(credentials, null, 2)}\n`, { mode: 0o600 });
  return credentials;
}

interface AccountOptions {
  gatewayUrl: string;
  dataDir: string;
  adminToken: string;
  writePast: WritePast;
}

/** A group with members and points, through the same calls that an operator makes. */
async function shareGroup(gatewayUrl: string, token: string): Promise<void> {
  const group = { name: "Vision lab", description: "Shares one pool of points" };
  const { id: group_id } = await rpc<{ id: string }>(gatewayUrl, "group.create", group, token);
  await rpc(
    gatewayUrl,
    "group.credits.topup",
    { group_id, points: POOL_POINTS, note: "Grant, first half" },
    token,
  );
  for (const [i, { email }] of COLLEAGUES.entries()) {
    await rpc(
      gatewayUrl,
      "group.members.add",
      { group_id, email, role: i === 0 ? "admin" : "member" },
      token,
    );
    const share = { group_id, user_id: email, points: SHARE_POINTS * (i + 1), note: "Monthly share" };
    await rpc(gatewayUrl, "group.credits.allocate", share, token);
  }
}

/** Registers the model server under its fixed name and waits until its first probe has made it routable. */
async function register(options: {
  gatewayUrl: string;
  adminToken: string;
  modelUrl: string;
}): Promise<void> {
  const { gatewayUrl, adminToken, modelUrl } = options;
  const backend = { name: BACKEND_NAME, type: "external", url: modelUrl };
  await post(`${gatewayUrl}/api/admin/backends`, backend, adminToken);
  const deadlineMs = Date.now() + ROUTABLE_WITHIN_MS;
  while (!(await isRoutable(gatewayUrl))) {
    if (Date.now() > deadlineMs) throw new Error("the demo model did not become routable");
    await Bun.sleep(ROUTABLE_POLL_MS);
  }
}

async function isRoutable(gatewayUrl: string): Promise<boolean> {
  const { data } = (await (await fetch(`${gatewayUrl}/v1/models`)).json()) as { data: { id: string }[] };
  return data.some(({ id }) => id === MODEL);
}

function describe(gatewayUrl: string, known: Credentials & { adminToken: string }): DemoIntroduction {
  const body = JSON.stringify({
    model: MODEL,
    stream: true,
    messages: [{ role: "user", content: "Hello there, my cat is called Misty." }],
  });
  const curl = `curl -N ${gatewayUrl}/v1/chat/completions -H 'Authorization: Bearer ${known.key}' -H 'Content-Type: application/json' -d '${body}'`;
  const text = [
    "Demonstration: a built-in model that needs no GPU, with memory. Data: the demo folder of the data directory",
    `  user         ${known.email}, password ${known.password}`,
    `  API key      ${known.key}`,
    `  admin token  ${known.adminToken}`,
    "",
    "Paste this to see an answer stream:",
    "",
    curl,
    "",
  ].join("\n");
  return { ...known, curl, text };
}
