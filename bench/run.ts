/**
 * `npm run bench`: the gateway against nginx as a plain proxy and against the least that this runtime can do, in
 * one run, taking turns, so that whatever else the machine does hits all of them. Prints a table and writes JSON
 * to bench/results/. `npm run bench -- --quick` takes a fraction of the time, `--only <text>` measures the
 * scenarios whose names contain the text.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { LoadPlan, LoadReport } from "./lib/load.ts";
import { cpuUs, rssMb, startServer, stopAll } from "./lib/processes.ts";
import { startBareProxy, startGateway, startNginx, type Target } from "./lib/targets.ts";

const quick = process.argv.includes("--quick");
const onlyAt = process.argv.indexOf("--only");
const only = onlyAt === -1 ? "" : (process.argv[onlyAt + 1] ?? "");
const ROUNDS = quick ? 1 : 3;
const scale = (count: number) => (quick ? Math.ceil(count / 5) : count);

const messages = (content: string) => [{ role: "user", content }];
const chat = (content: string, rest: object = {}) =>
  JSON.stringify({ model: "bench", messages: messages(content), ...rest });
const LONG_PROMPT = 'The quick brown fox said "no" to the lazy dog.\n'.repeat(1_300);

interface Scenario {
  name: string;
  /** What CPU time is divided by. */
  per: "request" | "event";
  plan: Omit<LoadPlan, "port" | "key">;
  gatewayOnly?: boolean;
}

const CHAT_PATH = "/v1/chat/completions";
const scenarios: Scenario[] = [
  {
    name: "chat, 64 connections",
    per: "request",
    plan: { path: CHAT_PATH, body: chat("hi"), connections: 64, requests: scale(15_000), stream: false },
  },
  {
    name: "chat, one at a time",
    per: "request",
    plan: { path: CHAT_PATH, body: chat("hi"), connections: 1, requests: scale(3_000), stream: false },
  },
  {
    name: "chat, 64 KB prompt",
    per: "request",
    plan: {
      path: CHAT_PATH,
      body: chat(LONG_PROMPT),
      connections: 16,
      requests: scale(4_000),
      stream: false,
    },
  },
  {
    name: "stream, 64 at once",
    per: "event",
    plan: {
      path: CHAT_PATH,
      body: chat("hi", { stream: true, seed: 1 }),
      connections: 64,
      requests: scale(256),
      stream: true,
    },
  },
  {
    name: "embeddings, 32 x 1536",
    per: "request",
    plan: {
      path: "/v1/embeddings",
      body: JSON.stringify({ model: "bench", input: Array.from({ length: 32 }, (_, i) => `text ${i}`) }),
      connections: 8,
      requests: scale(1_000),
      stream: false,
    },
  },
  {
    name: "1,000 streams",
    per: "event",
    plan: {
      path: CHAT_PATH,
      body: chat("hi", { stream: true }),
      connections: 1_000,
      requests: scale(2_000),
      stream: true,
    },
  },
  {
    name: "auth.me by HTTP",
    per: "request",
    gatewayOnly: true,
    plan: {
      path: "/api/rpc",
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "auth.me" }),
      connections: 32,
      requests: scale(15_000),
      stream: false,
    },
  },
];

interface Sample extends LoadReport {
  cpuUs: number;
  rssMb: number;
}

async function measure(target: Target, { plan, per }: Scenario): Promise<Sample> {
  const before = cpuUs(target.pid);
  const child = Bun.spawn(
    [
      process.execPath,
      join(import.meta.dir, "lib/load.ts"),
      JSON.stringify({ ...plan, port: target.port, key: target.key }),
    ],
    { stdout: "pipe", stderr: "inherit" },
  );
  const text = await new Response(child.stdout).text();
  if ((await child.exited) !== 0) throw new Error("the load generator failed");
  const report = JSON.parse(text) as LoadReport;
  const used = cpuUs(target.pid) - before;
  return {
    ...report,
    cpuUs: used / (per === "event" ? report.events : report.requests),
    rssMb: rssMb(target.pid),
  };
}

const median = (values: number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
const summary = (samples: Sample[]): Sample =>
  Object.fromEntries(
    Object.keys(samples[0]!).map((key) => [
      key,
      median(samples.map((sample) => sample[key as keyof Sample])),
    ]),
  ) as unknown as Sample;

const upstream = await startServer("upstream.ts", [], { CHUNKS: quick ? "20" : "60" });
const nginx = await startNginx(upstream.port);
if (!nginx) console.log("nginx is not installed; its column is left out");
const bare = await startBareProxy(upstream.port);
const gateway = await startGateway(upstream.port);
const targets = [...(nginx ? [nginx] : []), bare, gateway];

const results: Record<string, Record<string, Sample>> = {};
const rows: Record<string, string>[] = [];
try {
  for (const scenario of scenarios.filter(({ name }) => name.includes(only))) {
    const tested = scenario.gatewayOnly ? [{ ...gateway, key: gateway.accessToken }] : targets;
    const samples = new Map<string, Sample[]>(tested.map(({ name }) => [name, []]));
    const warmUp = {
      ...scenario,
      plan: {
        ...scenario.plan,
        requests: Math.min(scenario.plan.requests, scenario.plan.stream ? scenario.plan.connections : 500),
      },
    };
    for (const target of tested) await measure(target, warmUp);
    for (let round = 0; round < ROUNDS; round++) {
      for (const target of tested) samples.get(target.name)!.push(await measure(target, scenario));
    }
    const byTarget = Object.fromEntries([...samples].map(([name, list]) => [name, summary(list)]));
    results[scenario.name] = byTarget;
    for (const [name, sample] of Object.entries(byTarget)) rows.push(row(scenario, name, sample, byTarget));
  }
} finally {
  await stopAll();
}

function row({ name, per, plan }: Scenario, target: string, sample: Sample, all: Record<string, Sample>) {
  const against = (other: string) => (all[other] ? `${(sample.cpuUs / all[other].cpuUs).toFixed(2)} x` : "");
  return {
    scenario: name,
    target,
    [`CPU us per ${"request/event"}`]: `${sample.cpuUs.toFixed(1)} per ${per}`,
    "of bare": against("bare Bun proxy"),
    "of nginx": against("nginx"),
    "p50 / p99 us": plan.stream ? "" : `${sample.p50Us.toFixed(0)} / ${sample.p99Us.toFixed(0)}`,
    "first event, longest gap ms": plan.stream
      ? `${sample.firstEventP50Ms.toFixed(1)}, ${sample.gapMaxMs.toFixed(0)}`
      : "",
    "RSS MB": sample.rssMb.toFixed(0),
    errors: String(sample.errors),
  };
}

console.table(rows);
console.log(
  `gateway: healthy ${gateway.startedMs.toFixed(0)} ms after start, ${gateway.restingRssMb.toFixed(0)} MB at rest`,
);
const folder = join(import.meta.dir, "results");
mkdirSync(folder, { recursive: true });
const file = join(folder, `${new Date().toISOString().replaceAll(":", "-")}.json`);
const { startedMs, restingRssMb } = gateway;
writeFileSync(
  file,
  `${JSON.stringify({ quick, bun: Bun.version, startedMs, restingRssMb, results }, null, 2)}\n`,
);
console.log(`written to ${file}`);
