import { cpus } from "node:os";
import { type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { ADMIN_TOKEN, type GatewayTarget, post, startGateway } from "../lib/gateway.ts";
import type { LoadPlan, LoadReport } from "../lib/load.ts";
import { cpuUs, ownCpuUs, startServer, stop } from "../lib/processes.ts";

const WORKERS = [1, 2, 4, 8, 16];
/** One client or one upstream alone would be what stops first. */
const SIDES = 4;
const CONNECTIONS_PER_WORKER = 64;
const STREAMS_PER_WORKER = 200;
const DURATION_MS = 8_000;
const SETTLED_MS = 1_500;
const EVERY_REQUEST = 1e9;

type Load = Pick<LoadPlan, "body" | "stream"> & { name: string; perWorker: number };
const LOADS: Load[] = [
  {
    name: "chats",
    body: chatBody("hi", { max_tokens: 100 }),
    stream: false,
    perWorker: CONNECTIONS_PER_WORKER,
  },
  // A token every 20 ms in each stream.
  {
    name: "streams",
    body: chatBody("hi", { stream: true, seed: 1 }),
    stream: true,
    perWorker: STREAMS_PER_WORKER,
  },
];

async function runAll(gateway: GatewayTarget, load: Load, workers: number, durationMs: number) {
  const plan = {
    path: CHAT_PATH,
    body: load.body,
    stream: load.stream,
    connections: Math.ceil((load.perWorker * workers) / SIDES),
    requests: EVERY_REQUEST,
    durationMs,
  };
  const reports = await Promise.all(Array.from({ length: SIDES }, () => runLoad(gateway, plan)));
  const sum = (of: (report: LoadReport) => number) => reports.reduce((all, report) => all + of(report), 0);
  if (sum(({ errors }) => errors) > 0) throw new Error(`${load.name}, ${workers} workers: requests failed`);
  return {
    done: load.stream ? sum(({ events }) => events) : sum(({ requests }) => requests),
    seconds: Math.max(...reports.map(({ seconds }) => seconds)),
    p99Ms: Math.max(...reports.map((report) => (load.stream ? report.delayP99Ms : report.p99Us / 1_000))),
  };
}

/**
 * One process, then ever more workers, up to the cores of this machine, which clients and upstreams share with them:
 * where it stops is where cores end, so processor time for each request says more than requests a second.
 */
async function measure(bench: Bench) {
  const samples = new Samples("cores");
  const durationMs = bench.scale(DURATION_MS);
  const upstreams = await Promise.all(Array.from({ length: SIDES }, () => startServer("upstream.ts")));
  try {
    for (const workers of WORKERS.filter((count) => count <= cpus().length)) {
      const name = workers === 1 ? "1 process" : `${workers} workers`;
      const gateway = await startGateway({
        upstreamPort: upstreams[0]!.port,
        name: `cores-${workers}`,
        workers,
      });
      for (const { port } of upstreams.slice(1))
        await post(
          `${gateway.url}/api/admin/backends`,
          { type: "external", name: `bench-${port}`, url: `http://127.0.0.1:${port}` },
          ADMIN_TOKEN,
        );
      for (const load of LOADS) {
        await runAll(gateway, load, workers, durationMs);
        const before = { all: cpuUs(gateway.pid), supervisor: ownCpuUs(gateway.pid) };
        const { done, seconds, p99Ms } = await runAll(gateway, load, workers, durationMs);
        await Bun.sleep(SETTLED_MS);
        const usedUs = cpuUs(gateway.pid) - before.all;
        const what = load.stream ? "event" : "request";
        samples.add("gateway", `${load.name}, ${name}, a second`, "", done / seconds);
        samples.add("gateway", `${load.name}, ${name}, CPU per ${what}`, "µs", usedUs / done);
        samples.add("gateway", `${load.name}, ${name}, p99`, "ms", p99Ms);
        if (workers > 1)
          samples.add(
            "gateway",
            `${load.name}, ${name}, of it the supervisor`,
            "%",
            ((ownCpuUs(gateway.pid) - before.supervisor) / usedUs) * 100,
          );
      }
      await stop(gateway.pid);
    }
  } finally {
    for (const { pid } of upstreams) await stop(pid);
  }
  return samples.figures;
}

export const rows: Row[] = [{ group: "cores", measure }];
