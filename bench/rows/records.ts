import { type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { type GatewayTarget, startGateway } from "../lib/gateway.ts";
import { cpuUs, stop } from "../lib/processes.ts";

/** Usage and records are written within a second. */
const WRITTEN_MS = 1_500;
/** The difference is small against a request, so it takes many rounds to see it. */
const ROUNDS_FACTOR = 4;
const WARM_UP_ROUNDS = 2;

/** The same chat requests on a gateway that keeps a record of each and on one that keeps none, in turns. */
async function measure({ upstreamPort, rounds, scale }: Bench) {
  const samples = new Samples("records");
  const start = (name: string, days: number) =>
    startGateway({ upstreamPort, name, settings: { SERVICE_REQUEST_RECORDS_DAYS: String(days) } });
  const without = await start("records-off", 0);
  const recording = await start("records-on", 30);
  const cpuPerRequest = async (gateway: GatewayTarget) => {
    const before = cpuUs(gateway.pid);
    const plan = { path: CHAT_PATH, body: chatBody("hi"), connections: 64, stream: false };
    const report = await runLoad(gateway, { ...plan, requests: scale(8_000) });
    if (report.errors > 0) throw new Error(`${report.errors} requests failed`);
    await Bun.sleep(WRITTEN_MS);
    return (cpuUs(gateway.pid) - before) / report.requests;
  };
  for (let round = -WARM_UP_ROUNDS; round < rounds * ROUNDS_FACTOR; round++) {
    const off = await cpuPerRequest(without);
    const on = await cpuPerRequest(recording);
    if (round < 0) continue;
    samples.add("gateway", "chat without request records, CPU per request", "µs", off);
    samples.add("gateway", "chat with request records, CPU per request", "µs", on);
    samples.add("gateway", "what records add to a chat, CPU per request", "µs", on - off);
  }
  for (const { pid } of [without, recording]) await stop(pid);
  return samples.figures;
}

export const rows: Row[] = [{ group: "records", measure }];
