import { type Address, type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { type Measured, Samples } from "../lib/figures.ts";
import type { LoadReport } from "../lib/load.ts";
import { cpuUs, rssMb } from "../lib/processes.ts";

/** As the board has them: what a request costs is measured with eight connections, whatever it is that is measured. */
const COST_CONNECTIONS = 8;
const REQUESTS = 15_000;
const LATENCIES = 3_000;
const FIRST_TOKENS = 60;
/** Each is held for as long; the most that was served at a p99 within the bound counts. */
const CONNECTIONS = [1, 2, 4, 8, 16, 32, 64, 128];
const STEP_MS = 2_000;
const P99_BOUND_US = 10_000;
const EVERY_REQUEST = 1e9;
/** Streams at once, each with a token every 20 ms; held if every token arrives and none is ten times as late. */
const STREAMS = [50, 100, 200, 300, 400, 600, 800, 1_000, 1_500, 2_000];
const STALL_MS = 200;
/** What a turn of requests leaves to be written belongs to them. */
const SETTLED_MS = 800;

interface Entrant {
  measured: Measured;
  address: Address;
  pid: number | null;
  share: number;
}

function entrantsOf({ targets, gateway, upstreamPort }: Bench): Entrant[] {
  const direct = { port: upstreamPort, key: "none", headers: "" };
  const through = targets
    .filter(({ peer }) => peer !== "router")
    .map((target) => ({ measured: target.peer, address: target, pid: target.pid, share: target.share }));
  const paid = { ...gateway, keys: gateway.groupKeys };
  return [
    { measured: "direct", address: direct, pid: null, share: 1 },
    ...through,
    { measured: "points", address: paid, pid: gateway.pid, share: 1 },
  ];
}

const whole = { path: CHAT_PATH, body: chatBody("hi"), stream: false };
const streamed = (seed: number) => ({
  path: CHAT_PATH,
  body: chatBody("hi", { stream: true, seed }),
  stream: true,
});

async function answered(who: Entrant, plan: Parameters<typeof runLoad>[1]): Promise<LoadReport> {
  const report = await runLoad(who.address, plan);
  if (report.errors > 0) throw new Error(`board, ${who.measured}: ${report.errors} requests failed`);
  return report;
}

/** What one at a time waits for; those without anything between are what the others are measured from. */
async function latencies(bench: Bench, who: Entrant, samples: Samples): Promise<void> {
  const requests = Math.ceil(bench.scale(LATENCIES) * who.share);
  const { p50Us, p99Us } = await answered(who, { ...whole, connections: 1, requests });
  samples.add(who.measured, "board, one connection, p50", "µs", p50Us);
  samples.add(who.measured, "board, one connection, p99", "µs", p99Us);
  // The upstream ends these after two tokens.
  const first = await answered(who, { ...streamed(2), connections: 1, requests: bench.scale(FIRST_TOKENS) });
  samples.add(who.measured, "board, first token p50", "ms", first.firstEventP50Ms);
}

async function cost(bench: Bench, who: Entrant & { pid: number }, samples: Samples): Promise<void> {
  const requests = Math.ceil(bench.scale(REQUESTS) * who.share);
  const before = cpuUs(who.pid);
  const report = await answered(who, { ...whole, connections: COST_CONNECTIONS, requests });
  await Bun.sleep(SETTLED_MS);
  const each = (cpuUs(who.pid) - before) / report.requests;
  samples.add(who.measured, `board, ${COST_CONNECTIONS} connections, CPU per request`, "µs", each);
  samples.add(who.measured, "board, memory", "MB", rssMb(who.pid));
}

/** The most that was served in a second at each bound, from one row of steps. */
async function throughput(bench: Bench, who: Entrant, samples: Samples): Promise<void> {
  const steps: { perSecond: number; p99Us: number }[] = [];
  for (const connections of CONNECTIONS) {
    const durationMs = bench.scale(STEP_MS);
    const report = await answered(who, { ...whole, connections, requests: EVERY_REQUEST, durationMs });
    steps.push({ perSecond: report.requests / report.seconds, p99Us: report.p99Us });
  }
  const most = (within: typeof steps) => Math.max(0, ...within.map(({ perSecond }) => perSecond));
  const bounded = steps.filter(({ p99Us }) => p99Us <= P99_BOUND_US);
  samples.add(who.measured, "board, requests a second, p99 within 10 ms", "", most(bounded));
  samples.add(who.measured, "board, requests a second", "", most(steps));
}

/** Ever more streams, until a token is lost or late. */
async function streamsHeld(bench: Bench, who: Entrant, samples: Samples): Promise<void> {
  let held = 0;
  for (const streams of STREAMS) {
    const report = await runLoad(who.address, { ...streamed(1), connections: streams, requests: streams });
    const isWhole = report.errors === 0 && report.tokens === streams * bench.chunks;
    if (!isWhole || report.gapMaxMs > STALL_MS) break;
    held = streams;
  }
  samples.add(who.measured, "board, streams held", "", held);
}

/**
 * What the board "On the Bench" measures, by its definitions, on this machine's cores: with clients and upstream on the
 * same ones, where the board gives 4 of 16 to the service. Here the gateway does all it always does, settlement included.
 */
async function measure(bench: Bench) {
  const samples = new Samples("board");
  const entrants = entrantsOf(bench);
  for (const who of entrants)
    await answered(who, {
      ...whole,
      connections: 64,
      requests: Math.ceil(bench.scale(2 * REQUESTS) * who.share),
    });
  for (let round = 0; round < bench.rounds; round++)
    for (const who of entrants) {
      await latencies(bench, who, samples);
      if (who.pid !== null) await cost(bench, { ...who, pid: who.pid }, samples);
      // The most of many steps: once is enough.
      if (round > 0) continue;
      await throughput(bench, who, samples);
      await streamsHeld(bench, who, samples);
    }
  return samples.figures;
}

export const rows: Row[] = [{ group: "board", measure }];
