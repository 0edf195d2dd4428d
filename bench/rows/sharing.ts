import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { redisCommand, startPostgres, startRedis } from "@model-gateway/testing/services.ts";
import { type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { median, Samples } from "../lib/figures.ts";
import { type GatewayTarget, launchGateway, rpc, startGateway } from "../lib/gateway.ts";
import { cpuUs, stop } from "../lib/processes.ts";

/** Usage is written within a quarter of a second; by then what a load left behind is in the database. */
const SETTLED_MS = 1_500;
const REVOCATIONS = 50;

interface Shared {
  postgres: { url: string; child: { pid?: number | undefined } };
  redis: { url: string; child: { pid?: number | undefined } };
  sql: Bun.SQL;
}

interface Load {
  name: string;
  keys: "keys" | "groupKeys";
  stream: boolean;
}
const LOADS: readonly Load[] = [
  { name: "request", keys: "keys", stream: false },
  { name: "request paid in points", keys: "groupKeys", stream: false },
  { name: "streamed token", keys: "groupKeys", stream: true },
];

const STREAMS = 400;
const REQUESTS = 8_000;
/** Until nothing is compiled any more; whole in a quick run, too. */
const WARM_UP_REQUESTS = 50_000;

const runOne = (gateway: GatewayTarget, { keys, stream }: Load, requests: number) =>
  runLoad(
    { ...gateway, keys: gateway[keys] },
    {
      path: CHAT_PATH,
      body: chatBody("hi", { max_tokens: 100, stream }),
      connections: stream ? 200 : 64,
      requests: stream ? STREAMS : requests,
      stream,
    },
  );

/** What all parts have used up to now. */
async function reading({ pid }: GatewayTarget, { postgres, redis, sql }: Shared) {
  const [row] = await sql.unsafe(
    "SELECT xact_commit AS n FROM pg_stat_database WHERE datname = current_database()",
  );
  return {
    gateway: cpuUs(pid),
    postgres: cpuUs(postgres.child.pid!),
    redis: cpuUs(redis.child.pid!),
    commits: Number(row.n),
    messages: await redisMessages(redis.url),
  };
}

/** Scripts and publications that all instances have sent. */
async function redisMessages(url: string): Promise<number> {
  const stats = String(await redisCommand(url, "INFO", "commandstats"));
  const calls = stats.matchAll(/^cmdstat_(?:eval|evalsha|publish):calls=(\d+)/gm);
  return Array.from(calls).reduce((sum, [, count]) => sum + Number(count), 0);
}

async function measureLoad(
  bench: Bench,
  {
    gateway,
    isShared,
    shared,
    load,
  }: { gateway: GatewayTarget; isShared: boolean; shared: Shared; load: Load },
  samples: Samples,
): Promise<void> {
  const before = await reading(gateway, shared);
  const report = await runOne(gateway, load, bench.scale(REQUESTS));
  if (report.errors > 0) throw new Error(`${load.name}: ${report.errors} requests failed`);
  await Bun.sleep(SETTLED_MS);
  const after = await reading(gateway, shared);
  const each = (part: keyof typeof before) =>
    (after[part] - before[part]) / (load.stream ? report.events : report.requests);
  const name = `${load.name}, ${isShared ? "shared" : "alone"}`;
  samples.add("gateway", name, "µs", each("gateway"));
  if (!isShared) return;
  samples.add("postgres", name, "µs", each("postgres"));
  samples.add("redis", name, "µs", each("redis"));
  samples.add("postgres", `${load.name}, commits`, "", each("commits"));
  samples.add("redis", `${load.name}, messages`, "", each("messages"));
}

/** From the answer of keys.revoke on one instance to the first refusal on another. */
async function measureRevocations(a: GatewayTarget, b: { url: string }, samples: Samples): Promise<void> {
  const status = async (key: string) => {
    const response = await fetch(b.url + CHAT_PATH, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: chatBody("hi"),
    });
    await response.text();
    return response.status;
  };
  const times: number[] = [];
  for (let i = 0; i < REVOCATIONS; i++) {
    const { id, key } = await rpc(a.url, "keys.create", { name: `r${i}` }, a.accessToken);
    if ((await status(key!)) !== 200) throw new Error("a new key was refused");
    await rpc(a.url, "keys.revoke", { key_id: id }, a.accessToken);
    const revokedAt = performance.now();
    while ((await status(key!)) !== 401);
    times.push(performance.now() - revokedAt);
  }
  samples.add("gateway", "key revoked on one, refused on another, median", "ms", median(times));
  samples.add("gateway", "key revoked on one, refused on another, longest", "ms", Math.max(...times));
}

async function measureAll(bench: Bench, shared: Shared): Promise<Samples> {
  const samples = new Samples("sharing");
  const { upstreamPort } = bench;
  const urls = { databaseUrl: shared.postgres.url, redisUrl: shared.redis.url };
  const alone = await startGateway({ upstreamPort, name: "alone" });
  const a = await startGateway({ upstreamPort, name: "shared-a", shared: urls });
  const b = await launchGateway({ name: "shared-b", shared: urls });
  for (const gateway of [alone, a]) for (const load of LOADS) await runOne(gateway, load, WARM_UP_REQUESTS);
  for (let round = 0; round < bench.rounds; round++)
    for (const load of LOADS)
      for (const gateway of [alone, a])
        await measureLoad(bench, { gateway, isShared: gateway === a, shared, load }, samples);
  await measureRevocations(a, b, samples);
  for (const { pid } of [alone, a, b]) await stop(pid);
  return samples;
}

/** What one request and one streamed token cost an instance, Postgres and Redis when instances share them. */
async function measure(bench: Bench) {
  const dir = mkdtempSync(join(tmpdir(), "gateway-bench-shared-"));
  const postgres = await startPostgres(dir);
  const redis = await startRedis(dir);
  const sql = new Bun.SQL(postgres.url, { max: 1 });
  try {
    return (await measureAll(bench, { postgres, redis, sql })).figures;
  } finally {
    await sql.close();
    redis.child.kill("SIGKILL");
    postgres.child.kill("SIGKILL");
    rmSync(dir, { recursive: true, force: true });
  }
}

export const rows: Row[] = [{ group: "sharing", measure }];
