import { type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { type GatewayTarget, startGateway } from "../lib/gateway.ts";
import { cpuUs, diskBytes, stop } from "../lib/processes.ts";
import { startBareProxy } from "../lib/targets.ts";

const AT_REST_MS = 60_000;
/** By then what a start brings about is over. */
const STARTED_MS = 30_000;
const WORKERS = 4;

/** One chat a second through processes that have served nothing, side by side: most of the time they all wait. */
async function measureChats(bench: Bench) {
  const samples = new Samples("quiet");
  const { upstreamPort, scale } = bench;
  const bare = await startBareProxy(upstreamPort);
  const gateway = await startGateway({ upstreamPort, name: "quiet" });
  await Bun.sleep(STARTED_MS);
  const direct = { port: upstreamPort, key: "none", headers: "" };
  const body = chatBody("hi");
  await Promise.all(
    Object.entries({ direct, bare, gateway }).map(async ([measured, target]) => {
      const plan = { path: CHAT_PATH, body, connections: 1, stream: false };
      const report = await runLoad(target, { ...plan, requests: scale(100), perSecond: 1 });
      const add = (name: string, us: number) =>
        samples.add(
          measured as "direct" | "bare" | "gateway",
          `chat, one a second, ${name}`,
          "ms",
          us / 1_000,
        );
      add("p50", report.p50Us);
      add("p99", report.p99Us);
    }),
  );
  await stop(bare.pid);
  await stop(gateway.pid);
  return samples.figures;
}

async function atRest(samples: Samples, name: string, { pid }: GatewayTarget) {
  await Bun.sleep(STARTED_MS);
  const before = { us: cpuUs(pid), bytes: diskBytes(pid) };
  await Bun.sleep(AT_REST_MS);
  samples.add("gateway", `${name} at rest, of a core`, "%", (cpuUs(pid) - before.us) / (AT_REST_MS * 10));
  samples.add(
    "gateway",
    `${name} at rest, written in a minute`,
    "KB",
    (diskBytes(pid) - before.bytes) / 1_024,
  );
  await stop(pid);
}

async function measureRest({ upstreamPort }: Bench) {
  const samples = new Samples("quiet");
  await atRest(samples, "one process", await startGateway({ upstreamPort, name: "rest" }));
  const workers = await startGateway({ upstreamPort, name: "resting-workers", workers: WORKERS });
  await atRest(samples, `${WORKERS} workers`, workers);
  return samples.figures;
}

export const rows: Row[] = [
  { group: "quiet", measure: measureChats },
  { group: "quiet", measure: measureRest },
];
