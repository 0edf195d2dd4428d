import { join } from "node:path";
import { type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { startGateway } from "../lib/gateway.ts";
import { cpuUs, stop } from "../lib/processes.ts";

/** Usage and records are written within a second. */
const WRITTEN_MS = 1_500;
/** About 20 seconds' worth: after so long the sums of all keys are written, here at the end of each turn. */
const REQUESTS = 240_000;
const WARM_UP_REQUESTS = 60_000;
const CONNECTIONS = 64;
const MAIN = "packages/gateway/src/main.ts";

/**
 * The same chat requests with a record of each and without, in turns in one process: how the runtime happens to compile a
 * process makes more of a difference than records do.
 */
async function measure({ upstreamPort, rounds, scale }: Bench) {
  const samples = new Samples("records");
  const preload = join(import.meta.dir, "..", "lib", "records-switch.ts");
  const gateway = await startGateway({
    upstreamPort,
    name: "records",
    program: ["--preload", preload, MAIN],
  });
  const cpuPerRequest = async (requests: number, isRecorded: boolean) => {
    const toggle = () => isRecorded && process.kill(gateway.pid, "SIGUSR2");
    const before = cpuUs(gateway.pid);
    toggle();
    const plan = { path: CHAT_PATH, body: chatBody("hi"), connections: CONNECTIONS, stream: false, requests };
    const { errors } = await runLoad(gateway, plan);
    if (errors > 0) throw new Error(`${errors} requests failed`);
    toggle();
    await Bun.sleep(WRITTEN_MS);
    return (cpuUs(gateway.pid) - before) / requests;
  };
  // They are on at first.
  process.kill(gateway.pid, "SIGUSR2");
  for (const isRecorded of [true, false]) await cpuPerRequest(scale(WARM_UP_REQUESTS), isRecorded);
  for (let round = 0; round < rounds; round++) {
    // Whatever drifts falls on both alike.
    const first = round % 2 === 0;
    const [a, b] = [
      await cpuPerRequest(scale(REQUESTS), first),
      await cpuPerRequest(scale(REQUESTS), !first),
    ];
    const [on, off] = first ? [a, b] : [b, a];
    samples.add("gateway", "chat without request records, CPU per request", "µs", off);
    samples.add("gateway", "chat with request records, CPU per request", "µs", on);
    samples.add("gateway", "what records add to a chat, CPU per request", "µs", on - off);
  }
  await stop(gateway.pid);
  return samples.figures;
}

export const rows: Row[] = [{ group: "records", measure }];
