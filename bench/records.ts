/**
 * `bun bench/records.ts [--rows 1000000] [--keys 10000] [--postgres <server url>]`: what does a record of every
 * request cost, and how long do the pages that show them take? First the CPU of this process for one record, from
 * the request's arrival to its row and sums in the database; rounds with and without records take turns. Then the methods
 * of the console's Requests page through HTTP, on so many records. SQLite in a temporary directory, or a database
 * that is made on the given server and dropped afterwards.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type App, startApp } from "../packages/gateway/src/app/index.ts";
import { type Config, readConfig } from "../packages/gateway/src/config.ts";
import { silentLog } from "../packages/gateway/src/kernel/log.ts";
import { openStorage } from "../packages/gateway/src/storage/index.ts";
import { seedRequests } from "../packages/gateway/tests/requests/support.ts";
import { parseArgs } from "../scripts/lib/args.ts";

const REQUESTS_PER_ROUND = 20_000;
const ROUNDS = 9;
/** Requests that end before the event loop turns: as many as a busy server has in hand at once. */
const BURST = 100;
const DAYS = 30;
const CALLS = 9;

const { values } = parseArgs({
  options: {
    rows: { type: "string", default: "1000000" },
    keys: { type: "string", default: "10000" },
    postgres: { type: "string" },
  },
});
const rows = Number(values.rows);

function configFor(dataDir: string, databaseUrl: string | null): Config {
  const read = readConfig({
    SERVICE_PORT: "0",
    SERVICE_DATA_DIR: dataDir,
    SERVICE_REGISTRATION_OPEN: "true",
    ...(databaseUrl && { SERVICE_DATABASE_URL: databaseUrl }),
  });
  if ("problems" in read) throw new Error(read.problems.join("; "));
  return read.config;
}

const median = (numbers: readonly number[]) =>
  numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]!;

/** CPU microseconds of one request's record; 0 requests leave one in a round without. */
async function cpuOfRound(app: App, isRecorded: boolean): Promise<number> {
  const { requests } = app.rooms;
  const principal = {
    keyId: "00000000-0000-4000-8000-00000000000a",
    keyPrefix: "bench000",
    project: "default",
    userId: "00000000-0000-4000-8000-00000000000b",
    tier: "free",
    group: null,
    models: null,
    expiresAtMs: Number.POSITIVE_INFINITY,
    captureUntilMs: 0,
    limits: null,
  };
  const route = { model: "gpt-4o-mini", name: "openai", reason: "fewest_requests" };
  const before = process.cpuUsage();
  for (let i = 0; i < REQUESTS_PER_ROUND; i += BURST) {
    for (let j = 0; j < BURST; j++) {
      const id = Bun.randomUUIDv7();
      const record = isRecorded ? requests.open("/v1/chat/completions", id) : null;
      if (!record) continue;
      record.principal = principal;
      record.modelAsked = "gpt-4o-mini";
      record.sent(route);
      record.firstTokenMs = Date.now();
      record.used({ promptTokens: 400, completionTokens: 300, isEstimated: false }, 240_000);
      record.end(200);
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  await requests.flush(60_000);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / REQUESTS_PER_ROUND;
}

async function measureCpu(app: App): Promise<void> {
  const costs: Record<"with" | "without", number[]> = { with: [], without: [] };
  for (let round = 0; round <= ROUNDS; round++) {
    for (const kind of ["without", "with"] as const) {
      const cost = await cpuOfRound(app, kind === "with");
      // The first round warms up.
      if (round > 0) costs[kind].push(cost);
    }
  }
  const [on, off] = [median(costs.with), median(costs.without)];
  // Other work on the machine makes rounds dearer, never cheaper.
  const least = Math.min(...costs.with) - Math.min(...costs.without);
  const rounds = costs.with.map((cost) => cost.toFixed(1)).join(" ");
  console.log(
    `CPU of a record: median ${(on - off).toFixed(2)} µs, least ${least.toFixed(2)} µs (rounds: ${rounds})`,
  );
}

async function measurePages(app: App, sample: { keyId: string; userId: string }): Promise<void> {
  const call = async (method: string, params: object, token?: string) => {
    const response = await fetch(`${app.url}/api/rpc`, {
      method: "POST",
      headers: { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    });
    // biome-ignore lint/suspicious/noExplicitAny: a script looks into answers freely
    const { result, error } = (await response.json()) as any;
    if (error) throw new Error(`${method}: ${error.message}`);
    return result;
  };
  const account = { email: "bench@example.com", password: "bench password" };
  const { access_token: token } = await call("auth.register", account);
  const ago = (days: number) => new Date(Date.now() - days * 86_400_000).toISOString();
  const everyone = true;
  const pages: [string, string, object][] = [
    ["newest", "requests.list", { everyone }],
    ["failed ones", "requests.list", { everyone, outcome: "failed" }],
    ["a rare model", "requests.list", { everyone, model: "rare" }],
    ["a rare model's failures", "requests.list", { everyone, model: "rare", outcome: "failed" }],
    ["nothing", "requests.list", { everyone, backend: "none" }],
    ["one key's", "requests.list", { everyone, key_id: sample.keyId }],
    ["one user's", "requests.list", { everyone, user_id: sample.userId }],
    ["500 of a key, 30 days", "requests.list", { everyone, key_id: sample.keyId, limit: 500 }],
    ["a week ago", "requests.list", { everyone, until: ago(7) }],
    ["stats, 1 hour", "requests.stats", { everyone, since: ago(1 / 24) }],
    ["stats, 24 hours", "requests.stats", { everyone }],
    ["stats, 7 days", "requests.stats", { everyone, since: ago(7) }],
    ["stats, 30 days", "requests.stats", { everyone, since: ago(30) }],
    ["stats, 30 days of a key", "requests.stats", { everyone, since: ago(30), key_id: sample.keyId }],
    ["stats, 7 days, by key", "requests.stats", { everyone, since: ago(7), with_keys: true }],
    ["stats, 30 days, by key", "requests.stats", { everyone, since: ago(30), with_keys: true }],
    ["stats, 30 days, failed", "requests.stats", { everyone, since: ago(30), outcome: "failed" }],
  ];
  for (const [name, method, params] of pages) {
    const times: number[] = [];
    let count = 0;
    for (let i = 0; i < CALLS; i++) {
      const startedAt = performance.now();
      const result = await call(method, params, token);
      times.push(performance.now() - startedAt);
      count = result.records?.length ?? result.totals.requests;
    }
    console.log(
      `${`${method} ${name}`.padEnd(44)} ${median(times).toFixed(1).padStart(7)} ms, longest ${Math.max(
        ...times,
      )
        .toFixed(1)
        .padStart(6)} ms  (${count.toLocaleString("en")})`,
    );
  }
}

async function measure(databaseUrl: string | null): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-records-"));
  const config = configFor(dataDir, databaseUrl);
  const db = await openStorage(config);
  const seeding = performance.now();
  const seeded = await seedRequests(db, {
    count: rows,
    untilMs: Date.now(),
    days: DAYS,
    keys: Number(values.keys),
  });
  // As housekeeping leaves it: sums by minute are kept for three days.
  for (const table of ["request_sums", "request_asker_sums"])
    await db.run(`DELETE FROM ${table} WHERE grain_ms = 60000 AND start_ms < $1`, [
      Date.now() - 3 * 86_400_000,
    ]);
  if (databaseUrl) await db.run("ANALYZE");
  await db.close();
  const tookMs = performance.now() - seeding;
  console.log(`${rows.toLocaleString("en")} records over ${DAYS} days in ${(tookMs / 1_000).toFixed(0)} s`);
  const app = await startApp({ ...config, requestRecordsMax: 2 * rows }, { log: silentLog });
  try {
    await measurePages(app, seeded.at(-1)!);
    await measureCpu(app);
  } finally {
    await app.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

if (values.postgres) {
  const name = `records_${crypto.randomUUID().replaceAll("-", "")}`;
  const server = new Bun.SQL(values.postgres, { max: 1 });
  await server.unsafe(`CREATE DATABASE ${name}`);
  const url = new URL(values.postgres);
  url.pathname = `/${name}`;
  try {
    await measure(url.href);
  } finally {
    await server.unsafe(`DROP DATABASE ${name} WITH (FORCE)`);
    await server.close();
  }
} else await measure(null);
