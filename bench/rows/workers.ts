import { readFileSync } from "node:fs";
import { type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { type GatewayTarget, startGateway } from "../lib/gateway.ts";
import { cpuUs, ownCpuUs, startServer, stop, treePids } from "../lib/processes.ts";

const WORKERS = 2;
/** Of each process: one that has fewer does less in one turn of its event loop, which costs more a request. */
const CONNECTIONS = 64;
const REQUESTS = 30_000;
/** Whole in a quick run, too: each worker compiles its own code, and has half of the requests to do it. */
const WARM_UP_ROUNDS = 4;
/** Usage is written within half a second. */
const SETTLED_MS = 1_500;

const LOADS = [
  { name: "request", keys: "keys" },
  { name: "request paid in points", keys: "groupKeys" },
] as const;

/** Cores that this process may use. */
function cores(): number[] {
  const list = /^Cpus_allowed_list:\s+(\S+)$/m.exec(readFileSync("/proc/self/status", "utf8"))![1]!;
  return list.split(",").flatMap((range) => {
    const [first, last = first] = range.split("-").map(Number) as [number, number?];
    return Array.from({ length: last! - first + 1 }, (_, i) => first + i);
  });
}

function pin(pid: number, to: readonly number[]): void {
  const { exitCode } = Bun.spawnSync(["taskset", "-apc", to.join(","), String(pid)], { stdout: "ignore" });
  if (exitCode !== 0) throw new Error("taskset failed");
}

interface Side {
  name: string;
  gateway: GatewayTarget;
  processes: number;
  requests: number;
}

async function measureLoad({ name, gateway, processes, requests }: Side, samples: Samples): Promise<void> {
  for (const load of LOADS) {
    const before = { all: cpuUs(gateway.pid), supervisor: ownCpuUs(gateway.pid) };
    const report = await runLoad(
      { ...gateway, keys: gateway[load.keys] },
      {
        path: CHAT_PATH,
        body: chatBody("hi", { max_tokens: 100 }),
        connections: CONNECTIONS * processes,
        requests,
        stream: false,
      },
    );
    if (report.errors > 0) throw new Error(`${load.name}, ${name}: ${report.errors} requests failed`);
    await Bun.sleep(SETTLED_MS);
    const each = (usedUs: number) => usedUs / report.requests;
    samples.add("gateway", `${load.name}, ${name}`, "µs", each(cpuUs(gateway.pid) - before.all));
    if (name !== "one process")
      samples.add(
        "gateway",
        `${load.name}, ${name}, of it the supervisor`,
        "µs",
        each(ownCpuUs(gateway.pid) - before.supervisor),
      );
    samples.add(
      "gateway",
      `${load.name}, ${name}, a second on one core`,
      "",
      report.requests / report.seconds,
    );
  }
}

/**
 * One process against two workers. The clients and the upstream take what is left of two cores, so two workers cannot
 * have a core each; instead both services get one and the same core, with everything else on the other. What two
 * workers serve less there than one process is the cost of being two; on two cores they would serve twice as much.
 */
async function measure(bench: Bench) {
  const samples = new Samples("workers");
  const allowed = cores();
  const isPinned = allowed.length > 1;
  const upstream = await startServer("upstream.ts");
  const { port: upstreamPort } = upstream;
  const one = await startGateway({ upstreamPort, name: "one-process" });
  const two = await startGateway({ upstreamPort, name: "two-workers", workers: WORKERS });
  try {
    if (isPinned) {
      for (const pid of [process.pid, upstream.pid]) pin(pid, [allowed[1]!]);
      for (const { pid } of [one, two]) for (const each of treePids(pid)) pin(each, [allowed[0]!]);
    }
    for (let round = -WARM_UP_ROUNDS; round < bench.rounds; round++) {
      const into = round < 0 ? new Samples("") : samples;
      const requests = round < 0 ? REQUESTS : bench.scale(REQUESTS);
      await measureLoad({ name: "one process", gateway: one, processes: 1, requests }, into);
      await measureLoad({ name: "two workers", gateway: two, processes: WORKERS, requests }, into);
    }
    for (const { name } of LOADS) {
      const served = (side: string) =>
        samples.figures.find((figure) => figure.name === `${name}, ${side}, a second on one core`)!.values
          .gateway!;
      const times = (WORKERS * served("two workers")) / served("one process");
      samples.add("gateway", `${name}, two workers on two cores, times one process`, "", times);
    }
  } finally {
    if (isPinned) pin(process.pid, allowed);
    for (const { pid } of [one, two, upstream]) await stop(pid);
  }
  return samples.figures;
}

export const rows: Row[] = [{ group: "workers", measure }];
