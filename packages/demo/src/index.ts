import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "@model-gateway/gateway/config.ts";
import type { RequestRow } from "@model-gateway/gateway/rooms/usage/index.ts";
import { startMemoryServer } from "@model-gateway/memory-server/server.ts";
import { z } from "zod";
import { callerOf, post, rpc } from "./calls.ts";
import { COLLEAGUES, pastMonth } from "./history.ts";
import { type DemoModelServer, SWITCH_PATH, startDemoModelServer } from "./model-server.ts";
import { type DemoNode, startDemoNode } from "./node.ts";
import { DEMO_PRICES } from "./prices.ts";
import { playNow, playPast } from "./scene.ts";
import { startDemoVideoServer, VIDEO_MODEL } from "./video-server.ts";
import { startDemoVoiceServer, VOICE_MODEL } from "./voice-server.ts";

const EMAIL = "demo@example.com";
const BACKEND_NAME = "demo";
/** Serves the same models, so that one can see what happens when it goes. */
const SPARE_NAME = "demo-spare";
const MODEL = "demo";
/** The demonstration keeps apart from real data: its backend points to a server that ends with it. */
const DATA_SUBDIR = "demo";
const CREDENTIALS_FILE = "demo-credentials.json";
const PRICES_FILE = "demo-prices.json";
const VIDEO_PORT_FILE = "demo-video-port";
const POOL_POINTS = 5_000;
const SHARE_POINTS = 800;
const OWN_POINTS = 300;
const ROUTABLE_WITHIN_MS = 10_000;
const ROUTABLE_POLL_MS = 50;

const secret = (byteCount: number) =>
  crypto.getRandomValues(new Uint8Array(byteCount)).toBase64({ alphabet: "base64url", omitPadding: true });
const Credentials = z.object({
  email: z.string(),
  password: z.string(),
  key: z.string(),
  /** Of the node; demonstrations of before it had one have none. */
  node_token: z.string().optional(),
});
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
  requests: readonly RequestRow[];
  people: readonly { id: string; email: string; name: string }[];
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
  let spare: DemoModelServer | null = startDemoModelServer();
  const spareUrl = spare.url;
  const onSwitch = async () => {
    const wasThere = spare;
    spare = wasThere ? null : startDemoModelServer({ port: Number(new URL(spareUrl).port) });
    await wasThere?.stop();
    return `${SPARE_NAME} is ${wasThere ? "away now" : "back"}.\n`;
  };
  const models = startDemoModelServer({ onSwitch });
  const videos = startDemoVideoServer(join(dataDir, VIDEO_PORT_FILE));
  const voice = startDemoVoiceServer();
  let node: DemoNode | null = null;
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
      const file = join(dataDir, CREDENTIALS_FILE);
      const isFirst = !existsSync(file);
      const credentials = await account({ gatewayUrl, file, adminToken, writePast });
      const registering = { gatewayUrl, adminToken };
      await register({ ...registering, type: "external", name: BACKEND_NAME, url: models.url }, MODEL);
      await register({ ...registering, type: "external", name: SPARE_NAME, url: spareUrl }, MODEL);
      await register(
        { ...registering, type: "minimax", name: VIDEO_MODEL, url: videos.url, models: [VIDEO_MODEL] },
        VIDEO_MODEL,
      );
      await register(
        { ...registering, type: "cloud-realtime", name: VOICE_MODEL, url: voice.url, models: [VOICE_MODEL] },
        VOICE_MODEL,
      );
      const { email, password, key, node_token } = credentials;
      const { access_token: token } = await rpc<Tokens>(gatewayUrl, "auth.login", { email, password });
      const caller = callerOf(gatewayUrl, { token, key });
      if (isFirst) await playPast(caller, MODEL);
      await playNow(caller);
      if (node_token !== undefined) node = startDemoNode(gatewayUrl, node_token);
      return describe(gatewayUrl, { ...credentials, adminToken, switchUrl: models.url + SWITCH_PATH });
    },
    async stop() {
      node?.stop();
      await models.stop();
      await spare?.stop();
      await videos.stop();
      await voice.stop();
      await memory.stop();
    },
  };
}

/** The demonstration's account and key: made on the first run, kept in a file that only the owner reads. */
async function account({ gatewayUrl, file, adminToken, writePast }: AccountOptions): Promise<Credentials> {
  if (existsSync(file)) return Credentials.parse(JSON.parse(readFileSync(file, "utf8")));
  const password = secret(12);
  const session = await rpc<Tokens>(gatewayUrl, "auth.register", {
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
  const requests = pastMonth({ userId: session.user.id, key, nowMs: Date.now() });
  await writePast({ requests, people: COLLEAGUES });
  // What they have used in a month is more than the free tier allows.
  for (const { email } of COLLEAGUES)
    await rpc(gatewayUrl, "billing.plan.set", { user_email: email, tier: "pro" }, adminToken);
  await shareGroup(gatewayUrl, token);
  const node = { machine_name: "demo-rack", version: "demo" };
  const { token: node_token } = await rpc<{ token: string }>(gatewayUrl, "agents.register", node, token);
  const credentials = { email: EMAIL, password, key: made.key, node_token };
  writeFileSync(file, `${JSON.stringify(credentials, null, 2)}\n`, { mode: 0o600 });
  return credentials;
}

interface Tokens {
  access_token: string;
  user: { id: string };
}

interface AccountOptions {
  gatewayUrl: string;
  file: string;
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
  const own = { group_id, user_id: EMAIL, points: OWN_POINTS, note: "For trying things out" };
  await rpc(gatewayUrl, "group.credits.allocate", own, token);
}

/** Registers a server under its fixed name and waits until its first probe has made `model` routable. */
async function register(
  options: {
    gatewayUrl: string;
    adminToken: string;
    type: string;
    name: string;
    url: string;
    models?: string[];
  },
  model: string,
): Promise<void> {
  const { gatewayUrl, adminToken, ...backend } = options;
  await post(`${gatewayUrl}/api/admin/backends`, backend, adminToken);
  const deadlineMs = Date.now() + ROUTABLE_WITHIN_MS;
  while (!(await isRoutable(gatewayUrl, model))) {
    if (Date.now() > deadlineMs) throw new Error(`${model} did not become routable`);
    await Bun.sleep(ROUTABLE_POLL_MS);
  }
}

async function isRoutable(gatewayUrl: string, model: string): Promise<boolean> {
  const { data } = (await (await fetch(`${gatewayUrl}/v1/models`)).json()) as { data: { id: string }[] };
  return data.some(({ id }) => id === model);
}

function describe(
  gatewayUrl: string,
  known: Credentials & { adminToken: string; switchUrl: string },
): DemoIntroduction {
  const body = JSON.stringify({
    model: MODEL,
    stream: true,
    messages: [{ role: "user", content: "Hello there, my cat is called Misty." }],
  });
  const curl = `curl -N ${gatewayUrl}/v1/chat/completions -H 'Authorization: Bearer ${known.key}' -H 'Content-Type: application/json' -d '${body}'`;
  const text = [
    `Open ${gatewayUrl} and sign in as ${known.email}, password ${known.password}`,
    "",
    "A demonstration: built-in models that need no GPU, with memory. Data: the demo folder of the data directory",
    `  API key      ${known.key}`,
    `  admin token  ${known.adminToken}`,
    `  take the backend ${SPARE_NAME} away, and bring it back: curl -X POST ${known.switchUrl}`,
    "",
    "Paste this to see an answer stream:",
    "",
    curl,
    "",
  ].join("\n");
  return { ...known, curl, text };
}
