import { type Bench, CHAT_PATH, chatBody, type Row, runLoad } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { startGateway } from "../lib/gateway.ts";
import { cpuUs, stop } from "../lib/processes.ts";

const HISTORIES = [0, 100_000, 1_000_000];
/** Usage is written within a quarter of a second; by then what a load left behind is in the database. */
const SETTLED_MS = 1_000;

/** The same chat requests on databases of different age, in turns. */
async function measure({ upstreamPort, quick, rounds, scale }: Bench) {
  const samples = new Samples("growth");
  const gateways = [];
  for (const history of HISTORIES.slice(0, quick ? 2 : undefined)) {
    console.log(`  a database with ${history.toLocaleString("en")} usage rows`);
    const gateway = await startGateway({ upstreamPort, name: `history-${history}`, history });
    gateways.push({ gateway, history });
  }
  const plan = { path: CHAT_PATH, body: chatBody("hi"), connections: 64, stream: false };
  for (let round = 0; round <= rounds * 2; round++) {
    for (const { gateway, history } of gateways) {
      for (const [how, keys] of [
        ["", gateway.keys],
        [" paid in points", gateway.groupKeys],
      ] as const) {
        const before = cpuUs(gateway.pid);
        const report = await runLoad({ ...gateway, keys }, { ...plan, requests: scale(8_000) });
        if (report.errors > 0) throw new Error(`${report.errors} requests failed`);
        await Bun.sleep(SETTLED_MS);
        const name = `chat${how} with ${history.toLocaleString("en")} usage rows, CPU per request`;
        // The first round warms up.
        if (round > 0) samples.add("gateway", name, "µs", (cpuUs(gateway.pid) - before) / report.requests);
      }
    }
  }
  for (const { gateway } of gateways) await stop(gateway.pid);
  return samples.figures;
}

export const rows: Row[] = [{ group: "growth", measure }];
