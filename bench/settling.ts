/**
 * `bun bench/settling.ts`: what settling costs a service that runs for real on SQLite, with many keys of several
 * accounts: bytes to disk, processor time and memory per chat, and how long the event loop is held.
 *
 *   --requests 20000    of each load
 *   --accounts 16       each with its share of the keys
 *   --keys 800
 *   --rounds 3          after one that warms up
 *   --against <folder>  another checkout, which takes turns with this one
 */
import { Database } from "bun:sqlite";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "@model-gateway/testing/services.ts";
import { parseArgs } from "../scripts/lib/args.ts";
import { CHAT_PATH, chatBody, runPlan } from "./lib/bench.ts";
import { median } from "./lib/figures.ts";
import { ADMIN_TOKEN, gatewaySettings, POOL_POINTS, post, RAISE_TIERS, rpc, signUp } from "./lib/gateway.ts";
import type { LoadPlan, LoadReport } from "./lib/load.ts";
import type { LoopHolds } from "./lib/loop-probe.ts";
import {
  cpuUs,
  diskBytes,
  rssMb,
  startCommand,
  startServer,
  stop,
  stopAll,
  untilReady,
} from "./lib/processes.ts";
import { folder } from "./lib/targets.ts";

const { values: flags } = parseArgs({
  options: {
    requests: { type: "string", default: "20000" },
    accounts: { type: "string", default: "16" },
    keys: { type: "string", default: "800" },
    rounds: { type: "string", default: "3" },
    against: { type: "string" },
  },
});
const [requests, accounts, keyCount, rounds] = [flags.requests, flags.accounts, flags.keys, flags.rounds].map(
  Number,
) as [number, number, number, number];
const here = join(import.meta.dir, "..");
const probe = join(import.meta.dir, "lib/loop-probe.ts");
/** Longer than rows wait before they are written, and the database's log before it is moved into its file. */
const SETTLED_MS = 1_500;
const CHECKPOINTED_MS = 12_000;
/** Few connections: with many, the requests of one turn of the event loop would hold it longer than anything else. */
const LOADS = [
  { name: "64 connections", connections: 64, share: 1 },
  { name: "4 connections", connections: 4, share: 0.5 },
] as const;
const WAYS = ["quota", "points"] as const;

interface Candidate {
  name: string;
  root: string;
  dataDir: string;
  probeFile: string;
  pid: number;
  port: number;
  keys: Record<(typeof WAYS)[number], string[]>;
}

async function launch({
  name,
  root,
  dataDir,
  probeFile,
}: Pick<Candidate, "name" | "root" | "dataDir" | "probeFile">) {
  const port = await freePort();
  const { pid } = startCommand(
    [process.execPath, "--preload", probe, join(root, "packages/gateway/src/main.ts")],
    { ...gatewaySettings({ port, dataDir }), LOOP_PROBE_FILE: probeFile },
    root,
  );
  await untilReady(name, async () => (await fetch(`http://127.0.0.1:${port}/v1/health`)).ok);
  return { pid, port };
}

async function populate(url: string, upstreamPort: number): Promise<Candidate["keys"]> {
  const keys: Candidate["keys"] = { quota: [], points: [] };
  // The first account is the administrator's, who alone issues points.
  const { accessToken: administrator } = await signUp(url);
  for (let n = 0; n < accounts; n++) {
    const { email, accessToken } = await signUp(url);
    await rpc(url, "billing.plan.set", { user_email: email, tier: "enterprise" }, ADMIN_TOKEN);
    const { id: groupId } = await rpc(url, "group.create", { name: "bench" }, accessToken);
    await rpc(
      url,
      "group.credits.topup",
      { group_id: groupId, points: POOL_POINTS / accounts },
      administrator,
    );
    for (let k = n; k < keyCount; k += accounts) {
      const { key } = await rpc(url, "keys.create", { name: `key ${k}` }, accessToken);
      const { key: drawing } = await rpc(
        url,
        "keys.create",
        { name: `key ${k}`, group_id: groupId },
        accessToken,
      );
      keys.quota.push(key!);
      keys.points.push(drawing!);
    }
  }
  await post(
    `${url}/api/admin/backends`,
    { type: "external", url: `http://127.0.0.1:${upstreamPort}` },
    ADMIN_TOKEN,
  );
  return keys;
}

async function start(name: string, root: string, upstreamPort: number): Promise<Candidate> {
  const parts = { name, root, dataDir: join(folder, name), probeFile: join(folder, `${name}.probe`) };
  mkdirSync(parts.dataDir, { recursive: true });
  const first = await launch(parts);
  const keys = await populate(`http://127.0.0.1:${first.port}`, upstreamPort);
  await stop(first.pid);
  const db = new Database(join(parts.dataDir, "gateway.sqlite"));
  db.run(RAISE_TIERS);
  db.close();
  const { pid, port } = await launch(parts);
  await untilReady("the backend", async () =>
    (await (await fetch(`http://127.0.0.1:${port}/v1/models`)).text()).includes('"bench"'),
  );
  return { ...parts, pid, port, keys };
}

/** How long the loop was held since the last time this was asked. */
async function holdsOf({ pid, probeFile }: Candidate): Promise<LoopHolds> {
  const lines = () => (existsSync(probeFile) ? readFileSync(probeFile, "utf8").split("\n").slice(0, -1) : []);
  const before = lines().length;
  process.kill(pid, "SIGUSR2");
  await untilReady("the loop's probe", async () => lines().length > before);
  return JSON.parse(lines().at(-1)!) as LoopHolds;
}

const samples = new Map<string, number[]>();
function add(name: string, value: number): void {
  samples.set(name, [...(samples.get(name) ?? []), value]);
}

async function measure(
  candidate: Candidate,
  way: (typeof WAYS)[number],
  load: (typeof LOADS)[number],
  counts: boolean,
) {
  const { name, pid, port, keys } = candidate;
  const plan: LoadPlan = {
    port,
    key: keys[way][0]!,
    keys: keys[way],
    path: CHAT_PATH,
    body: chatBody("x".repeat(900)),
    connections: load.connections,
    requests: Math.ceil(requests * load.share),
    stream: false,
  };
  await holdsOf(candidate);
  const cpuBefore = cpuUs(pid);
  const report = await runPlan<LoadReport>("load.ts", plan);
  if (report.errors > 0) throw new Error(`${name}: ${report.errors} requests failed`);
  await Bun.sleep(SETTLED_MS);
  const holds = await holdsOf(candidate);
  if (!counts) return;
  const row = (what: string) => `${load.name}, paid by ${way}, ${what}\t${name}`;
  add(row("CPU per request, µs"), (cpuUs(pid) - cpuBefore) / report.requests);
  add(row("p50, µs"), report.p50Us);
  add(row("p99, µs"), report.p99Us);
  add(row("requests a second"), report.requests / report.seconds);
  add(row("longest hold of the loop, ms"), holds.longestMs);
  add(row("holds over 3 ms"), holds.overThreeMs);
  add(row("memory, MB"), rssMb(pid));
}

/** Everything that a way of paying has written: also what was still in a log when its loads ended. */
async function measureWay(candidates: readonly Candidate[], way: (typeof WAYS)[number]): Promise<void> {
  const before = candidates.map(({ pid }) => diskBytes(pid));
  let sent = 0;
  for (let round = 0; round <= rounds; round++)
    for (const load of LOADS) {
      for (const candidate of candidates) await measure(candidate, way, load, round > 0);
      sent += Math.ceil(requests * load.share);
    }
  await Bun.sleep(CHECKPOINTED_MS);
  for (const [index, { name, pid }] of candidates.entries())
    add(
      `paid by ${way}, KB to disk per request, all in all\t${name}`,
      (diskBytes(pid) - before[index]!) / sent / 1024,
    );
}

try {
  const upstream = await startServer("upstream.ts");
  const candidates = [await start("here", here, upstream.port)];
  if (flags.against) candidates.unshift(await start("there", flags.against, upstream.port));
  for (const way of WAYS) await measureWay(candidates, way);
  const table: Record<string, Record<string, string>> = {};
  for (const [name, values] of samples) {
    const [what, who] = name.split("\t") as [string, string];
    table[what] ??= {};
    table[what][who] = median(values).toFixed(2);
    table[what][`${who}, all`] = values.map((value) => value.toFixed(1)).join(" ");
  }
  console.table(table);
} finally {
  await stopAll();
}
process.exit(0);
