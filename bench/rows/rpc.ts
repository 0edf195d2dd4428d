import { type Bench, type Row, runLoad, runPlan } from "../lib/bench.ts";
import { Samples } from "../lib/figures.ts";
import { signUp } from "../lib/gateway.ts";
import { cpuUs } from "../lib/processes.ts";
import type { SocketPlan, SocketReport } from "../lib/socket-load.ts";

const message = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "auth.me" });
const CONNECTIONS = 32;

async function measure({ gateway, rounds, scale }: Bench) {
  const requests = scale(15_000);
  // A new one: tokens last for fifteen minutes, and in a whole run this row comes later than that.
  const { accessToken } = await signUp(gateway.url);
  const byHttp = () =>
    runLoad(
      { ...gateway, key: accessToken, keys: [accessToken] },
      { path: "/api/rpc", body: message, connections: CONNECTIONS, requests, stream: false },
    );
  const plan: SocketPlan = {
    url: `ws://127.0.0.1:${gateway.port}/api/rpc?token=${accessToken}`,
    message,
    connections: CONNECTIONS,
    requests,
  };
  const bySocket = () => runPlan<SocketReport>("socket-load.ts", plan);
  const samples = new Samples("rpc");
  for (let round = 0; round <= rounds; round++) {
    for (const [name, load] of [
      ["auth.me by HTTP, CPU per call", byHttp],
      ["auth.me by WebSocket, CPU per call", bySocket],
    ] as const) {
      const before = cpuUs(gateway.pid);
      const { requests: answered, errors } = await load();
      if (errors > 0) throw new Error(`${name}: ${errors} calls failed`);
      // The first round warms up.
      if (round > 0) samples.add("gateway", name, "µs", (cpuUs(gateway.pid) - before) / answered);
    }
  }
  return samples.figures;
}

export const rows: Row[] = [{ group: "rpc", measure }];
