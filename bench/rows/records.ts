import { type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { startGateway } from "../lib/gateway.ts";
import { cpuUs, stop } from "../lib/processes.ts";

/** Usage and records are written within a second. */
const WRITTEN_MS = 1_500;
const REQUESTS = 25_000;
/** Until nothing is compiled any more. */
const WARM_UP_REQUESTS = 60_000;
const CONNECTIONS = 32;
const ROUNDS_FACTOR = 2;

/**
 * The same chat requests on a gateway that keeps a record of each and on one that keeps none. Side by side: the
 * difference is small, and what else the machine does then falls on both alike.
 */
async function measure({ upstreamPort, rounds, scale }: Bench) {
  const samples = new Samples("records");
  const start = (name: string, days: number) =>
    startGateway({ upstreamPort, name, settings: { SERVICE_REQUEST_RECORDS_DAYS: String(days) } });
  const gateways = [await start("records-off", 0), await start("records-on", 30)];
  const cpuPerRequest = async (requests: number) => {
    const before = gateways.map(({ pid }) => cpuUs(pid));
    const plan = { path: CHAT_PATH, body: chatBody("hi"), connections: CONNECTIONS, stream: false, requests };
    const reports = await Promise.all(gateways.map((gateway) => runLoad(gateway, plan)));
    const errors = reports.reduce((sum, report) => sum + report.errors, 0);
    if (errors > 0) throw new Error(`${errors} requests failed`);
    await Bun.sleep(WRITTEN_MS);
    return gateways.map(({ pid }, i) => (cpuUs(pid) - before[i]!) / requests);
  };
  await cpuPerRequest(scale(WARM_UP_REQUESTS));
  for (let round = 0; round < rounds * ROUNDS_FACTOR; round++) {
    const [off, on] = (await cpuPerRequest(scale(REQUESTS))) as [number, number];
    samples.add("gateway", "chat without request records, CPU per request", "µs", off);
    samples.add("gateway", "chat with request records, CPU per request", "µs", on);
    samples.add("gateway", "what records add to a chat, CPU per request", "µs", on - off);
  }
  for (const { pid } of gateways) await stop(pid);
  return samples.figures;
}

export const rows: Row[] = [{ group: "records", measure }];
