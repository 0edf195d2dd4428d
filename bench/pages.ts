/**
 * `bun bench/pages.ts [--requests 1000000] [--keys 10000] [--conversations 1000] [--groups 100] [--models 100]
 * [--postgres <server url>] [--keep <name>]`: how long does the data of each page of the console take on a service with
 * a past? Makes the past, then measures how long its database takes to open and the service to start, and asks for what
 * each page asks, through HTTP, as its administrator. Prints a table: the least and the median of seven calls, and the
 * CPU time of this process for one (with Postgres, without the server's). SQLite in a temporary directory, or databases
 * that are made on the given server and dropped afterwards. With `--keep` the past stays there under that name, and the
 * next run with it finds it.
 */
import { type App, startApp } from "../packages/gateway/src/app/index.ts";
import { type Config, readConfig } from "../packages/gateway/src/config.ts";
import { silentLog } from "../packages/gateway/src/kernel/log.ts";
import { type Database, insertRows } from "../packages/gateway/src/storage/contract.ts";
import { openStorage } from "../packages/gateway/src/storage/index.ts";
import { parseArgs } from "../scripts/lib/args.ts";
import { KEYS_OF_ONE, keyIdOf, personOf, seedUsage } from "./growth-seed.ts";
import { launchGateway, UPSTREAM } from "./lib/gateway.ts";
import { KEEPER, makePlaces, type Place } from "./lib/places.ts";
import { cpuUs, startServer, stop, untilReady } from "./lib/processes.ts";

const CALLS = 7;
const DAYS = 30;
const GOAL_MS = 300;
const MEMBERS_PER_GROUP = 20;
const MEMBERS_OF_ONE = 2_000;
const DAY_MS = 86_400_000;

const { values } = parseArgs({
  options: {
    requests: { type: "string", default: "1000000" },
    keys: { type: "string", default: "10000" },
    conversations: { type: "string", default: "1000" },
    groups: { type: "string", default: "100" },
    models: { type: "string", default: "100" },
    postgres: { type: "string" },
    keep: { type: "string" },
  },
});
const counts = {
  requests: Number(values.requests),
  keys: Number(values.keys),
  conversations: Number(values.conversations),
  groups: Number(values.groups),
  models: Number(values.models),
};

function configFor({ dataDir, databaseUrl }: Place): Config {
  const read = readConfig({
    SERVICE_PORT: "0",
    SERVICE_DATA_DIR: dataDir,
    SERVICE_REGISTRATION_OPEN: "true",
    ...(databaseUrl && { SERVICE_DATABASE_URL: databaseUrl }),
  });
  if ("problems" in read) throw new Error(read.problems.join("; "));
  return { ...read.config, requestRecordsMax: 2 * counts.requests };
}

// biome-ignore lint/suspicious/noExplicitAny: a script looks into answers freely
type Answer = any;
const callerOf =
  (app: App, token?: string) =>
  async (method: string, params: object = {}): Promise<Answer> => {
    if (method.startsWith("/")) return (await fetch(app.url + method)).json();
    const response = await fetch(`${app.url}/api/rpc`, {
      method: "POST",
      headers: { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    });
    const { result, error } = (await response.json()) as Answer;
    if (error) throw new Error(`${method}: ${error.message}`);
    return result;
  };

const uuid = (n: number) => `11111111-0000-4000-8000-${n.toString(16).padStart(12, "0")}`;
const now = new Date().toISOString();

/** People with their keys, named as the requests of the past name them. */
async function seedPeople(db: Database, keys: number, ownerId: string): Promise<string[]> {
  const people = [...new Set(Array.from({ length: keys }, (_, i) => personOf(i)))];
  await insertRows(
    db,
    "users (id, email, name, password_hash, is_admin, tier, created_at)",
    people.map((id, i) => [id, `person-${i}@example.com`, `Person ${i}`, "none", false, "free", now]),
  );
  const ofKeys = Array.from({ length: keys }, (_, i) => {
    const id = keyIdOf(i);
    const userId = i < KEYS_OF_ONE ? ownerId : personOf(i);
    return [id, userId, `hash-${i}`, `key ${i}`, "default", id.slice(-8), true, now];
  });
  await insertRows(
    db,
    "api_keys (id, user_id, key_hash, name, project, key_prefix, active, created_at)",
    ofKeys,
  );
  return people;
}

async function seedConversations(db: Database, count: number, ownerId: string): Promise<void> {
  const at = (i: number) => new Date(Date.now() - i * 60_000).toISOString();
  await insertRows(
    db,
    "conversations (id, user_id, title, created_at, updated_at)",
    Array.from({ length: count }, (_, i) => [uuid(i), ownerId, `Conversation ${i}`, at(i), at(i)]),
  );
}

/** Of all of them one person is a member; the first has as many members as a group may. */
async function seedGroups(db: Database, people: readonly string[], ownerId: string): Promise<void> {
  const groups = Array.from({ length: counts.groups }, (_, i) => uuid(i));
  await insertRows(
    db,
    "user_groups (id, name, description, owner_id, enforce_model_allowlist, created_at)",
    groups.map((id, i) => [id, `Group ${i}`, "", ownerId, false, now]),
  );
  const members = groups.flatMap((group, i) => {
    const others = Math.min(people.length, i === 0 ? MEMBERS_OF_ONE - 1 : MEMBERS_PER_GROUP - 1);
    const some = Array.from(
      { length: others },
      (_, j) => people[(i * MEMBERS_PER_GROUP + j) % people.length]!,
    );
    return [ownerId, ...some].map((id) => [
      group,
      id,
      id === ownerId ? "admin" : "member",
      1_000_000,
      true,
      now,
    ]);
  });
  await insertRows(
    db,
    "group_members (group_id, user_id, role, cost_multiplier_micros, is_active, created_at)",
    members,
  );
}

async function seed(db: Database, ownerId: string): Promise<void> {
  const startedAt = performance.now();
  const people = await seedPeople(db, counts.keys, ownerId);
  await seedConversations(db, counts.conversations, ownerId);
  await seedGroups(db, people, ownerId);
  const past = { endMs: Date.now(), days: DAYS, keys: counts.keys };
  const { indexesMs } = await seedUsage(db, counts.requests, { ...past, heavyUser: ownerId });
  const seconds = [performance.now() - startedAt, indexesMs].map((ms) => (ms / 1_000).toFixed(0));
  console.log(`made in ${seconds[0]} s, of which the indexes on its requests took ${seconds[1]} s`);
}

function pagesOf(request: { id: string; key_id: string; api_key_id: string }) {
  const ago = (days: number) => new Date(Date.now() - days * DAY_MS).toISOString();
  const dayAgo = (days: number) => ago(days).slice(0, 10);
  const everyone = true;
  const month = { since: dayAgo(30), until: dayAgo(-1) };
  const week = { since: dayAgo(7), until: dayAgo(-1) };
  const pages: [page: string, what: string, method: string, params?: object][] = [
    ["Overview", "activity", "system.activity"],
    ["Overview", "plan", "billing.plan"],
    ["Overview", "latest", "usage.list", { limit: 10 }],
    ["Usage", "a month, by model", "usage.series", { ...month, by: "model" }],
    ["Usage", "a month, by key", "usage.series", { ...month, by: "key" }],
    ["Usage", "everyone, a month, by model", "usage.series", { everyone, ...month, by: "model" }],
    ["Usage", "everyone, a month, by key", "usage.series", { everyone, ...month, by: "key" }],
    ["Usage", "everyone, a month, by project", "usage.series", { everyone, ...month, by: "project" }],
    ["Usage", "everyone, a week, by key", "usage.series", { everyone, ...week, by: "key" }],
    ["Usage", "rows", "usage.records", { everyone, ...month, limit: 50 }],
    ["Usage", "a page of the CSV", "usage.records", { everyone, ...month, limit: 500 }],
    [
      "Usage",
      "a page of a key's CSV",
      "usage.records",
      { everyone, ...month, api_key_id: request.api_key_id, limit: 500 },
    ],
    ["Requests", "newest", "requests.list", { everyone }],
    ["Requests", "failed", "requests.list", { everyone, outcome: "failed", since: ago(30) }],
    ["Requests", "a rare model's", "requests.list", { everyone, model: "rare" }],
    ["Requests", "a rare model's failures", "requests.list", { everyone, model: "rare", outcome: "failed" }],
    ["Requests", "of no backend", "requests.list", { everyone, backend: "none" }],
    ["Requests", "a week ago", "requests.list", { everyone, until: ago(7) }],
    ["Requests", "own, newest", "requests.list", {}],
    ["Requests", "own, failed", "requests.list", { outcome: "failed" }],
    ["Requests", "own, 24 hours", "requests.stats", {}],
    ["Requests", "own, 7 days", "requests.stats", { since: ago(7) }],
    ["Requests", "own, 30 days", "requests.stats", { since: ago(30) }],
    [
      "Requests",
      "one key's, 30 days",
      "requests.stats",
      { everyone, key_id: request.key_id, since: ago(30) },
    ],
    ["Requests", "30 days, failed", "requests.stats", { everyone, since: ago(30), outcome: "failed" }],
    ["Requests", "one key's", "requests.list", { everyone, key_id: request.key_id, since: ago(30) }],
    ["Requests", "a page of the CSV", "requests.list", { everyone, since: ago(30), limit: 500 }],
    [
      "Requests",
      "a page of a key's CSV",
      "requests.list",
      { everyone, key_id: request.key_id, since: ago(30), limit: 500 },
    ],
    ["Requests", "24 hours", "requests.stats", { everyone }],
    ["Requests", "7 days", "requests.stats", { everyone, since: ago(7) }],
    ["Requests", "30 days", "requests.stats", { everyone, since: ago(30) }],
    ["Requests", "24 hours, by key", "requests.stats", { everyone, by: "key" }],
    ["Requests", "7 days, by key", "requests.stats", { everyone, since: ago(7), by: "key" }],
    ["Requests", "30 days, by key", "requests.stats", { everyone, since: ago(30), by: "key" }],
    ["Requests", "one request", "requests.get", { id: request.id }],
    ["Keys", "500 of one account", "keys.list"],
    ["Groups", "own", "group.list"],
    ["Groups", "everyone's", "group.list", { everyone }],
    ["Groups", "one of 20", "group.get", { group_id: uuid(1) }],
    ["Groups", "one of 2,000", "group.get", { group_id: uuid(0) }],
    ["Groups", "2,000 members", "group.members.list", { group_id: uuid(0), include_inactive: true }],
    ["Groups", "a month, by member", "group.series", { group_id: uuid(0), ...month, by: "user" }],
    ["Wallet", "statement", "ledger.self"],
    ["Conversations", "list", "conversations.list"],
    ["Conversations", "one", "conversations.get", { conversation_id: uuid(0) }],
    ["Video", "list", "video.list", { limit: 24 }],
    ["Models & backends", "backends", "backends.list"],
    ["Models & backends", "prices", "billing.prices.list"],
    ["Models", "catalogue", "models.list"],
    ["Models", "of the API", "/v1/models"],
    ["Models", "one of the API", "/v1/models/bench"],
    ["Nodes", "list", "agents.list"],
    ["Users", "first page", "users.list", { limit: 50 }],
    ["Users", "search", "users.list", { search: "person-99", limit: 50 }],
    ["Audit log", "newest", "audit.list"],
    ["Settings", "sessions", "auth.sessions.list"],
  ];
  return pages;
}

const median = (numbers: readonly number[]) =>
  numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]!;

/** Someone who administers the service, and a backend with all models. */
async function populate(config: Config, upstreamUrl: string): Promise<string> {
  const app = await startApp(config, { log: silentLog });
  try {
    const call = callerOf(app);
    const known = await call("auth.login", KEEPER).catch(() => null);
    const { user, access_token } = known ?? (await call("auth.register", KEEPER));
    const backend = { name: UPSTREAM, type: "external", url: upstreamUrl, seen: null };
    const asAdmin = callerOf(app, access_token);
    const { backends } = await asAdmin("backends.list");
    await asAdmin(backends.length > 0 ? "backends.update" : "backends.add", backend);
    return user.id;
  } finally {
    await app.stop();
  }
}

/** How long the database takes to open, its schema being known, and the service until it answers. */
async function measureStart(what: string, place: Place): Promise<void> {
  const opened: number[] = [];
  const started: number[] = [];
  const cpu: number[] = [];
  for (let i = 0; i < CALLS; i++) {
    const beganAt = performance.now();
    await (await openStorage(place)).close();
    opened.push(performance.now() - beganAt);
    const { pid, startedMs } = await launchGateway({
      name: "start",
      settings: {
        SERVICE_DATA_DIR: place.dataDir,
        SERVICE_WARM_UP: "0",
        ...(place.databaseUrl && { SERVICE_DATABASE_URL: place.databaseUrl }),
      },
    });
    cpu.push(cpuUs(pid) / 1_000);
    started.push(startedMs);
    await stop(pid);
  }
  const [open, start, used] = [opened, started, cpu].map((times) => median(times).toFixed(0));
  console.log(`${what}: opened in ${open} ms, answers ${start} ms after its start (${used} ms of CPU)`);
}

async function measure([empty, full]: readonly [Place, Place]): Promise<number> {
  const upstream = await startServer("upstream.ts", [], { MODELS: values.models });
  try {
    const config = configFor(full);
    const ownerId = await populate(config, `http://127.0.0.1:${upstream.port}`);
    const db = await openStorage(config);
    const listed = Object.entries(counts).map(([of, count]) => `${count.toLocaleString("en")} ${of}`);
    console.log(`${db.dialect}: ${listed.join(", ")}`);
    if (!(await db.get("SELECT id FROM requests LIMIT 1"))) await seed(db, ownerId);
    const request = await db.get<Parameters<typeof pagesOf>[0]>(
      "SELECT id, key_id, api_key_id FROM requests WHERE ref_id = 'ref-0' ORDER BY ended_ms DESC LIMIT 1",
    );
    await db.close();
    await (await openStorage(empty)).close();
    await measureStart("empty", empty);
    await measureStart("grown", full);
    const app = await startApp(config, { log: silentLog });
    try {
      await untilReady(
        "the models",
        async () => (await app.rooms.routing.callableModels()).length >= counts.models,
      );
      return await ask(app, pagesOf(request!));
    } finally {
      await app.stop();
    }
  } finally {
    await stop(upstream.pid);
  }
}

/** Prints what each took; how many were beyond the goal. */
async function ask(app: App, pages: ReturnType<typeof pagesOf>): Promise<number> {
  const { access_token: token } = await callerOf(app)("auth.login", KEEPER);
  const call = callerOf(app, token);
  console.log("\n| Page | | Least, ms | Median, ms | CPU, ms |\n|---|---|---:|---:|---:|");
  let missed = 0;
  for (const [page, what, method, params] of pages) {
    const times: number[] = [];
    const cpu = process.cpuUsage();
    for (let i = 0; i < CALLS; i++) {
      const startedAt = performance.now();
      await call(method, params);
      times.push(performance.now() - startedAt);
    }
    const { user, system } = process.cpuUsage(cpu);
    // What else runs on the machine only ever adds.
    const least = Math.min(...times);
    const isLate = least > GOAL_MS;
    if (isLate) missed++;
    const figures = [least, median(times), (user + system) / 1_000 / CALLS].map((ms) => ms.toFixed(0));
    console.log(`| ${page} | ${what} | ${figures.join(" | ")} |${isLate ? " (!)" : ""}`);
  }
  console.log(`\n${pages.length - missed} of ${pages.length} within ${GOAL_MS} ms`);
  return missed;
}

const places = await makePlaces("pages", values);
const missed = await measure(places.both).finally(places.remove);
process.exit(missed > 0 ? 1 : 0);
