/**
 * `bun bench/growth.ts [--rows 1000000] [--models 0] [--postgres <server url>] [--keep <name>]`: does the service cost
 * more once it has a history? Measures without rows and with many, in turns, the CPU of admission + settlement (journal,
 * ledger, rollups and all) and of whole chats, those of the service with the history with so many more models; then the
 * usage queries through HTTP. SQLite in a temporary directory, or two databases that are made on the given server and
 * dropped afterwards. With `--keep` the history is what `bench/pages.ts` made and kept under that name.
 */
import { type App, startApp } from "../packages/gateway/src/app/index.ts";
import { type Config, readConfig } from "../packages/gateway/src/config.ts";
import { silentLog } from "../packages/gateway/src/kernel/log.ts";
import { MULTIPLIER_ONE, type Payer } from "../packages/gateway/src/kernel/payer.ts";
import type { MeteringService } from "../packages/gateway/src/rooms/metering/index.ts";
import { DAY_MS } from "../packages/gateway/src/rooms/usage/index.ts";
import { openStorage } from "../packages/gateway/src/storage/index.ts";
import { parseArgs } from "../scripts/lib/args.ts";
import { seedUsage } from "./growth-seed.ts";
import { CHAT_PATH, chatBody, runLoad } from "./lib/bench.ts";
import { ADMIN_TOKEN, launchGateway, populate, RAISE_TIERS, rpc } from "./lib/gateway.ts";
import { KEEPER, makePlaces, type Place } from "./lib/places.ts";
import { cpuUs, startServer, stop, stopAll, untilReady } from "./lib/processes.ts";

const REQUESTS_PER_ROUND = 10_000;
const CHATS_PER_ROUND = 8_000;
/** Usage is written within a quarter of a second. */
const SETTLED_MS = 1_000;
const ROUNDS = 8;
/** Requests that end before the event loop turns: as many as a busy server has in hand at once. */
const BURST = 100;

const { values } = parseArgs({
  options: {
    rows: { type: "string", default: "1000000" },
    models: { type: "string", default: "0" },
    postgres: { type: "string" },
    keep: { type: "string" },
  },
});
const rows = Number(values.rows);

function configFor({ dataDir, databaseUrl }: Place): Config {
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

async function measureQueries(app: App, heavyUser: string): Promise<void> {
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
  // Requests that failed were not charged.
  if (totals.requests < 0.96 * rows) throw new Error(`the rollups know ${totals.requests} of ${rows} rows`);
  const ago = (days: number) => new Date(Date.now() - days * DAY_MS).toISOString();
  const month = { since: ago(30).slice(0, 10), until: ago(-1).slice(0, 10) };
  await timed("usage query, a month by model", () => ask({ ...month, group_by: "model" }));
  await timed("usage query, a month by day", () => ask({ ...month, group_by: "day" }));
  await timed("usage query, a month by ref", () => ask({ ...month, group_by: "ref" }));
  const exact = { since: ago(30), until: ago(0) };
  await timed("usage query, bounds within days, by model", () => ask({ ...exact, group_by: "model" }));
  await timed("usage query, a month with its newest 100 rows", () =>
    ask({ ...month, include_records: true }),
  );
  const actor = { userId: heavyUser, email: "", name: "", isAdmin: false };
  await timed("usage.list, page 1 of the user with a fifth of the rows", () =>
    app.rooms.usage.list(actor, {}),
  );
  await timed("usage.list, page 1 of a rare project", () => app.rooms.usage.list(actor, { project: "rare" }));
}

function compare(what: string, [empty, grown]: readonly [number[], number[]]): void {
  // The least disturbed round of each: what else runs on the machine only ever adds.
  const [without, having] = [Math.min(...empty), Math.min(...grown)];
  const percent = ((having / without - 1) * 100).toFixed(1);
  console.log(
    `CPU of ${what}: ${without.toFixed(1)} µs empty, ${having.toFixed(1)} µs with ${rows} rows (${percent} %)`,
  );
}

/** Rounds alternate, so that whatever else the machine does falls on both alike; the first warms up. */
async function inTurns(what: string, cpuOf: (which: 0 | 1) => Promise<number>): Promise<void> {
  const cpu: [number[], number[]] = [[], []];
  for (let round = 0; round <= ROUNDS; round++) {
    for (const which of [0, 1] as const) {
      const each = await cpuOf(which);
      if (round > 0) cpu[which].push(each);
    }
  }
  compare(what, cpu);
}

/** Whole chats of processes of their own. */
async function measureChats(both: readonly [Place, Place]): Promise<void> {
  const gateways: Awaited<ReturnType<typeof launchChats>>[] = [];
  for (const [i, place] of both.entries())
    gateways.push(await launchChats(`growth-${i}`, place, i === 0 ? "0" : values.models));
  const plan = { path: CHAT_PATH, body: chatBody("hi"), connections: 64, stream: false };
  for (const [what, of] of [
    ["a chat, points", "groupKeys"],
    ["a chat, tier quota", "keys"],
  ] as const)
    await inTurns(what, async (which) => {
      const gateway = gateways[which]!;
      const before = cpuUs(gateway.pid);
      const target = { port: gateway.port, key: gateway.key, keys: gateway[of], headers: "" };
      const report = await runLoad(target, { ...plan, requests: CHATS_PER_ROUND });
      if (report.errors > 0) throw new Error(`${report.errors} requests failed`);
      await Bun.sleep(SETTLED_MS);
      return (cpuUs(gateway.pid) - before) / report.requests;
    });
  for (const { pid } of gateways) await stop(pid);
}

async function launchChats(name: string, place: Place, models: string) {
  const { dataDir, databaseUrl } = place;
  const upstream = await startServer("upstream.ts", [], { MODELS: models });
  const settings = {
    SERVICE_DATA_DIR: dataDir,
    ...(databaseUrl && { SERVICE_DATABASE_URL: databaseUrl }),
  };
  const gateway = await launchGateway({ name, settings });
  const isKept = values.keep !== undefined && place === both[1];
  const admin = isKept ? (await rpc(gateway.url, "auth.login", KEEPER)).access_token : undefined;
  const people = await populate(gateway.url, upstream.port, admin);
  await untilReady("the models", async () => {
    const { data } = (await (await fetch(`${gateway.url}/v1/models`)).json()) as { data: { id: string }[] };
    return data.length > Number(models) && data.some(({ id }) => id === "bench");
  });
  return { ...gateway, ...people };
}

const { both, remove } = await makePlaces("growth", values);
try {
  const seedStart = performance.now();
  for (const place of both) {
    const db = await openStorage(place);
    await db.run(RAISE_TIERS);
    if (place === both[1] && !values.keep)
      await seedUsage(db, rows, { endMs: Date.now(), heavyUser: crypto.randomUUID() });
    await db.close();
  }
  console.log(`seeded ${rows} rows in ${((performance.now() - seedStart) / 1000).toFixed(1)} s`);

  const apps = [
    await startApp(configFor(both[0]), { log: silentLog }),
    await startApp(configFor(both[1]), { log: silentLog }),
  ] as const;
  const db = await openStorage(both[1]);
  // Whoever made the tagged rows made a fifth of all.
  const heavy = await db.get<{ user_id: string }>(
    "SELECT user_id FROM requests WHERE ref_id = 'ref-0' LIMIT 1",
  );
  await db.close();
  await measureQueries(apps[1], heavy!.user_id);
  const payers = [await prepare(apps[0]), await prepare(apps[1])] as const;
  for (const [kind, name] of ["points", "tier quota"].entries())
    await inTurns(`settling, ${name}`, (which) => spend(apps[which], payers[which][kind]!));
  for (const app of apps) await app.stop();
  await measureChats(both);
} finally {
  await stopAll();
  await remove();
}
