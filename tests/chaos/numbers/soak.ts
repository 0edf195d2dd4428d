import { readFileSync } from "node:fs";
import { cpus } from "node:os";
import { CHAT_PATH, chatBody, runLoad } from "../../../bench/lib/bench.ts";
import { startGateway } from "../../../bench/lib/gateway.ts";
import { rssMb, startServer, stop } from "../../../bench/lib/processes.ts";
import type { Outcome } from "./outcome.ts";

const CONNECTIONS = 32;
const WARM_UP_MS = 20_000;
/** Long enough that settling, which runs behind the answers, is part of what the machine can do. */
const CAPACITY_MS = 60_000;
const WINDOW_MS = 30_000;
const LOAD = 0.8;
/** How often the rate is set by what the processors made of the last one. */
const TRIALS = 3;
/** Windows before the first that counts: a process takes what it needs once. */
const WARM_WINDOWS = 2;
const CHANGE_MAX = 0.05;

interface Window {
  p99Ms: number;
  mb: number;
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

/** Milliseconds that the processors on which this may run have been busy, and have existed. */
function processorTimes(): { busyMs: number; allMs: number } {
  const list = /^Cpus_allowed_list:\s*(.*)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "";
  const allowed = list.split(",").map((range) => range.split("-").map(Number));
  const isAllowed = (cpu: number) => allowed.some(([first, last = first]) => cpu >= first! && cpu <= last!);
  let [idleMs, allMs] = [0, 0];
  for (const { times } of cpus().filter((_, cpu) => isAllowed(cpu))) {
    idleMs += times.idle;
    allMs += Object.values(times).reduce((sum, ms) => sum + ms, 0);
  }
  return { busyMs: allMs - idleMs, allMs };
}

/**
 * A rate that keeps the processors busy four fifths of the time, for so long; clients and upstream count too.
 * Memory and p99 of the last windows against the first ones. A request's time counts from when it was due.
 */
export async function measureSoak(minutes: number, say: (line: string) => void): Promise<Outcome> {
  const upstream = await startServer("upstream.ts", [], { CHUNKS: "10" });
  const gateway = await startGateway({ upstreamPort: upstream.port, name: `soak-${crypto.randomUUID()}` });
  const plan = { path: CHAT_PATH, body: chatBody("hi"), connections: CONNECTIONS, stream: false };
  try {
    const flatOut = (durationMs: number) =>
      runLoad(gateway, { ...plan, requests: Number.MAX_SAFE_INTEGER, durationMs });
    await flatOut(WARM_UP_MS);
    const most = await flatOut(CAPACITY_MS);
    say(`${Math.round(most.requests / most.seconds)} requests a second at most`);
    const atRate = (perSecond: number) =>
      runLoad(gateway, {
        ...plan,
        perSecond,
        requests: Number.MAX_SAFE_INTEGER,
        durationMs: WINDOW_MS,
      });
    let perSecond = Math.floor((most.requests / most.seconds) * LOAD);
    for (let trial = 0; trial < TRIALS; trial++) {
      const before = processorTimes();
      await atRate(perSecond);
      const after = processorTimes();
      const busy = (after.busyMs - before.busyMs) / (after.allMs - before.allMs);
      say(`processors ${Math.round(busy * 100)} % busy at ${perSecond} requests a second`);
      perSecond = Math.floor((perSecond * LOAD) / busy);
    }
    const windows: Window[] = [];
    let errors = 0;
    let requests = 0;
    const untilMs = Date.now() + minutes * 60_000;
    while (Date.now() < untilMs || windows.length < WARM_WINDOWS + 2) {
      const report = await atRate(perSecond);
      errors += report.errors;
      requests += report.requests;
      windows.push({ p99Ms: report.p99Us / 1_000, mb: rssMb(gateway.pid) });
      const { p99Ms, mb } = windows.at(-1)!;
      say(`${report.requests} requests, p99 ${p99Ms.toFixed(2)} ms, ${mb.toFixed(1)} MB`);
    }
    const counted = windows.slice(WARM_WINDOWS);
    const part = Math.max(1, Math.floor(counted.length / 4));
    const change = (figure: keyof Window) => {
      const early = median(counted.slice(0, part).map((window) => window[figure]));
      const late = median(counted.slice(-part).map((window) => window[figure]));
      return { early, late, share: late / early - 1 };
    };
    const [memory, p99] = [change("mb"), change("p99Ms")];
    const percent = (share: number) => `${share >= 0 ? "+" : ""}${(share * 100).toFixed(1)} %`;
    return {
      lines: [
        `${minutes} minutes at ${perSecond} requests a second: ${requests} requests, ${errors} errors`,
        `memory ${memory.early.toFixed(1)} MB, then ${memory.late.toFixed(1)} MB (${percent(memory.share)})`,
        `p99 ${p99.early.toFixed(2)} ms, then ${p99.late.toFixed(2)} ms (${percent(p99.share)})`,
      ],
      isSound: errors === 0 && memory.share <= CHANGE_MAX && p99.share <= CHANGE_MAX,
    };
  } finally {
    await stop(gateway.pid);
    await stop(upstream.pid);
  }
}
