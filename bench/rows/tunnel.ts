import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Address, type Bench, CHAT_PATH, type Row, runLoad } from "../lib/bench.ts";
import { type Figure, Samples } from "../lib/figures.ts";
import { ADMIN_TOKEN, type GatewayTarget, post, rpc, startGateway } from "../lib/gateway.ts";
import { cpuUs, startCommand, stop, untilReady } from "../lib/processes.ts";
import { folder } from "../lib/targets.ts";

const STREAMS = [64, 256] as const;
const WORKERS = [1, 4] as const;
const ROUNDS_PER_STREAM = 3;
const TOKENS = 128;
const MODEL = "tunnelled";
const SETTLED_MS = 1_500;
/** A real engine loads its weights first. */
const ENGINE_READY_MS = 300_000;

/** Gets a port and a model's id as its last two arguments. `BENCH_ENGINE` names a real one. */
const engine = process.env.BENCH_ENGINE?.split(" ") ?? [
  process.execPath,
  join(import.meta.dir, "..", "lib", "clock-engine.ts"),
];

/** The node program with the engine as its model; resolves with the engine's port. */
async function startNode({ url, accessToken }: GatewayTarget, name: string) {
  const dir = join(folder, name);
  mkdirSync(dir, { recursive: true });
  const config = join(dir, "agent.toml");
  // Engines listen on 127.0.0.1 only, so the node is not reached at its host but through its tunnel.
  writeFileSync(
    config,
    `host = "127.0.0.2"
bind = "127.0.0.1"
[engines.bench]
command = ${JSON.stringify([...engine, "{port}", "{model_id}"])}
weights = "none"
health_path = "/health"
[models.${MODEL}]
engine = "bench"
`,
  );
  const { agent_id, token } = await rpc(
    url,
    "agents.register",
    { machine_name: name, version: "1" },
    accessToken,
  );
  const { pid } = startCommand(
    [process.execPath, "packages/agent/src/main.ts", "--gateway", url, "--config", config, "--data-dir", dir],
    { AGENT_TOKEN: token! },
  );
  const status = async () =>
    (await rpc(url, "agents.status", { agent_id }, accessToken)) as unknown as {
      online: boolean;
      models: { status: string; port?: number; via: string | null }[];
    };
  await untilReady("the node", async () => (await status()).online);
  await rpc(url, "agents.deploy", { model_id: MODEL, agent_id }, accessToken);
  await untilReady("the engine", async () => (await status()).models[0]?.via === "tunnel", ENGINE_READY_MS);
  return { pid, port: (await status()).models[0]!.port! };
}

interface Way extends Address {
  measured: "direct" | "gateway" | "tunnel";
  model: string;
}

async function measureWay(
  way: Way,
  {
    streams,
    gatewayPid,
    samples,
    name,
  }: { streams: number; gatewayPid: number; samples: Samples; name: string },
): Promise<void> {
  const before = cpuUs(gatewayPid);
  const report = await runLoad(way, {
    path: CHAT_PATH,
    body: JSON.stringify({
      model: way.model,
      messages: [{ role: "user", content: "hi" }],
      max_tokens: TOKENS,
      stream: true,
    }),
    connections: streams,
    requests: streams * ROUNDS_PER_STREAM,
    stream: true,
  });
  if (report.errors > 0) throw new Error(`${name}, ${way.measured}: ${report.errors} requests failed`);
  const tokens = report.requests * TOKENS;
  const { measured } = way;
  samples.add(measured, `${name}: tokens a second`, "", tokens / report.seconds);
  samples.add(measured, `${name}: first token`, "ms", report.firstEventP50Ms);
  samples.add(measured, `${name}: longest gap`, "ms", report.gapMaxMs);
  if (measured === "direct") return;
  await Bun.sleep(SETTLED_MS);
  samples.add(measured, `${name}: CPU of the gateway per token`, "µs", (cpuUs(gatewayPid) - before) / tokens);
}

/** The engine at its port, behind the gateway, and behind the gateway and a node's tunnel, taking turns. */
async function measure({ upstreamPort, rounds }: Bench): Promise<Figure[]> {
  const samples = new Samples("tunnel");
  for (const workers of WORKERS) {
    const gateway = await startGateway({ upstreamPort, name: `tunnel-${workers}`, workers });
    const node = await startNode(gateway, `node-${workers}`);
    try {
      const backend = { type: "external", name: "engine", url: `http://127.0.0.1:${node.port}` };
      await post(`${gateway.url}/api/admin/backends`, { ...backend, models: ["near"] }, ADMIN_TOKEN);
      const ways: Way[] = [
        { measured: "direct", model: "near", port: node.port, key: "none", headers: "" },
        { ...gateway, measured: "gateway", model: "near" },
        { ...gateway, measured: "tunnel", model: MODEL },
      ];
      for (const streams of STREAMS) {
        const name = `${streams} streams, ${workers} process${workers > 1 ? "es" : ""}`;
        for (let round = -1; round < rounds; round++) {
          const into = round < 0 ? new Samples("") : samples;
          for (const way of ways)
            await measureWay(way, { streams, gatewayPid: gateway.pid, samples: into, name });
        }
      }
    } finally {
      for (const { pid } of [node, gateway]) await stop(pid);
    }
  }
  return samples.figures;
}

export const rows: Row[] = [{ group: "tunnel", measure }];
