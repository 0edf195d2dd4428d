/**
 * `bun bench/growth.ts [--rows 1000000] [--postgres <server url>]`: does the service cost more once it has a
 * history? Measures the CPU of admission + settlement (journal, ledger, rollups and all) without rows and with
 * many, then the usage queries through HTTP. SQLite in a temporary directory, or two databases that are made on
 * the given server and dropped afterwards.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type App, startApp } from "../packages/gateway/src/app/index.ts";
import { type Config, readConfig } from "../packages/gateway/src/config.ts";
import { silentLog } from "../packages/gateway/src/kernel/log.ts";
import { MULTIPLIER_ONE, type Payer } from "../packages/gateway/src/kernel/payer.ts";
import type { MeteringService } from "../packages/gateway/src/rooms/metering/index.ts";
import { openStorage } from "../packages/gateway/src/storage/index.ts";
import { parseArgs } from "../scripts/lib/args.ts";
import { seedUsage } from "./growth-seed.ts";

const ADMIN_TOKEN = "growth-bench-admin-token";
const REQUESTS_PER_ROUND = 10_000;
const ROUNDS = 8;
/** Requests that end before the event loop turns: as many as a busy server has in hand at once. */
const BURST = 100;
/** The user with a fifth of all rows. */
const HEAVY_USER = "00000000-0000-4000-8000-000000000000";

const { values } = parseArgs({
  options: { rows: { type: "string", default: "1000000" }, postgres: { type: "string" } },
});
const rows = Number(values.rows);

function configFor(dataDir: string, databaseUrl: string | null): Config {
  const read = readConfig({
    SERVICE_PORT: "0",
    SERVICE_DATA_DIR: dataDir,
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    SERVICE_REGISTRATION_OPEN: "true",
    ...(databaseUrl && { SERVICE_DATABASE_URL: databaseUrl }),
  });
  if ("problems" in read) throw new Error(read.problems.join("; "));
  return read.config;
}

const median = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]!;

/** CPU microseconds a request, of admission and settlement with everything that follows from them. */
async function spend(app: App, payer: Payer): Promise<number> {
  const metering = app.rooms.metering as MeteringService;
  const before = process.cpuUsage();
  for (let i = 0; i < REQUESTS_PER_ROUND; i += BURST) {
    for (let j = 0; j < BURST; j++) {
      const admission = await metering.admit({
        requestId: Bun.randomUUIDv7(),
        payer,
        model: "gpt-4o-mini",
        bound: { promptTokens: 500, outputTokensMax: 500, outputTokensMin: 256 },
        refId: null,
      });
      admission.settle({ backend: "gateway", promptTokens: 400, completionTokens: 300, estimated: false });
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (!(await metering.flush(60_000))) throw new Error("the journal did not drain");
  const { user, system } = process.cpuUsage(before);
  return (user + system) / REQUESTS_PER_ROUND;
}

async function prepare(app: App): Promise<Payer[]> {
  const userId = crypto.randomUUID();
  const { ledger } = app.rooms;
  await ledger.transaction((tx) =>
    ledger.topup(tx, { type: "user", id: userId }, { points: 100_000_000, note: null, actor: userId }),
  );
  const payer = {
    keyId: crypto.randomUUID(),
    attribution: "bench000",
    project: "default",
    groupId: null,
    costMultiplierMicros: MULTIPLIER_ONE,
    rpmCeiling: null,
    keyLimits: null,
    tier: "enterprise",
  };
  return [
    { ...payer, userId },
    { ...payer, userId: crypto.randomUUID() },
  ];
}

async function timed(what: string, work: () => Promise<unknown>): Promise<void> {
  await work();
  const times: number[] = [];
  for (let i = 0; i < 7; i++) {
    const start = performance.now();
    await work();
    times.push(performance.now() - start);
  }
  console.log(`${what.padEnd(58)} ${median(times).toFixed(1).padStart(8)} ms`);
}

async function measureQueries(app: App, dbRows: number): Promise<void> {
  const ask = async (body: unknown) => {
    const response = await fetch(`${app.url}/api/admin/usage/query`, {
      method: "POST",
      headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
      body: JSON.stringify(body),
    });
    if (response.status !== 200) throw new Error(`the usage query answered ${response.status}`);
    return response.json();
  };
  const { totals } = (await ask({})) as { totals: { requests: number } };
  if (totals.requests < dbRows) throw new Error(`the rollups know ${totals.requests} of ${dbRows} rows`);
  const month = { since: "2026-10-01", until: "2026-10-31" };
  await timed("usage query, a month by model", () => ask({ ...month, group_by: "model" }));
  await timed("usage query, a month by day", () => ask({ ...month, group_by: "day" }));
  await timed("usage query, a month by ref", () => ask({ ...month, group_by: "ref" }));
  const exact = { since: "2026-10-01T06:30:00Z", until: "2026-10-31T18:00:00Z" };
  await timed("usage query, bounds within days, by model", () => ask({ ...exact, group_by: "model" }));
  await timed("usage query, a month with its newest 100 rows", () =>
    ask({ ...month, include_records: true }),
  );
  const actor = { userId: HEAVY_USER, email: "", name: "", isAdmin: false };
  await timed("usage.list, page 1 of the user with a fifth of the rows", () =>
    app.rooms.usage.list(actor, {}),
  );
  await timed("usage.list, page 1 of a rare project", () => app.rooms.usage.list(actor, { project: "rare" }));
}

/** Two databases of their own on the server, or null twice for SQLite. */
async function makeDatabases(serverUrl: string | undefined) {
  if (serverUrl === undefined) return { urls: [null, null] as const, drop: async () => {} };
  const server = new Bun.SQL(serverUrl, { max: 1 });
  const suffix = crypto.randomUUID().slice(0, 8);
  const names = [`growth_empty_${suffix}`, `growth_full_${suffix}`] as const;
  for (const name of names) await server.unsafe(`CREATE DATABASE ${name}`);
  const urlOf = (name: string) => Object.assign(new URL(serverUrl), { pathname: `/${name}` }).href;
  return {
    urls: [urlOf(names[0]), urlOf(names[1])] as const,
    drop: async () => {
      for (const name of names) await server.unsafe(`DROP DATABASE ${name} WITH (FORCE)`);
      await server.close();
    },
  };
}

const databases = await makeDatabases(values.postgres);
const dirs = [
  mkdtempSync(join(tmpdir(), "growth-empty-")),
  mkdtempSync(join(tmpdir(), "growth-full-")),
] as const;
try {
  const full = configFor(dirs[1], databases.urls[1]);
  const seedStart = performance.now();
  const db = await openStorage(full);
  await seedUsage(db, rows, { endMs: Date.parse("2026-11-14T23:59:59Z"), heavyUser: HEAVY_USER });
  if (db.dialect === "postgres") await db.run("ANALYZE");
  await db.close();
  console.log(`seeded ${rows} rows in ${((performance.now() - seedStart) / 1000).toFixed(1)} s`);

  const apps = [
    await startApp(configFor(dirs[0], databases.urls[0]), { log: silentLog }),
    await startApp(full, { log: silentLog }),
  ] as const;
  const payers = [await prepare(apps[0]), await prepare(apps[1])] as const;
  for (const [kind, name] of ["points", "tier quota"].entries()) {
    const cpu: [number[], number[]] = [[], []];
    // Rounds alternate, so that whatever else the machine does falls on both alike; the first warms up.
    for (let round = 0; round <= ROUNDS; round++) {
      for (const which of [0, 1] as const) {
        const each = await spend(apps[which], payers[which][kind]!);
        if (round > 0) cpu[which].push(each);
      }
    }
    // The least disturbed round of each: what else runs on the machine only ever adds.
    const [empty, grown] = [Math.min(...cpu[0]), Math.min(...cpu[1])];
    console.log(
      `CPU a request, ${name}: ${empty.toFixed(1)} µs empty, ${grown.toFixed(1)} µs with ${rows} rows (${((grown / empty - 1) * 100).toFixed(1)} %)`,
    );
  }
  await measureQueries(apps[1], rows);
  for (const app of apps) await app.stop();
} finally {
  await databases.drop();
  for (const dir of dirs) rmSync(dir, { recursive: true, force: true });
}
