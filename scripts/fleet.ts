/**
 * `npm run fleet [-- --nodes 8 --models 20 --clients 500 --requests 20]`
 *
 * A fleet without GPUs: nodes that hold a part of the models, clients with sessions, and models that are loaded on
 * demand. Prints what the clients got, how often each model was loaded, and how long a warm request took.
 */
import "./lib/help.ts";
import { runFleet } from "../packages/gateway/tests/agents/simulated-fleet.ts";
import { bootInference } from "../packages/gateway/tests/support/inference.ts";
import { parseArgs } from "./lib/args.ts";

const number = (value: string) => ({ type: "string", default: value }) as const;
const { values } = parseArgs({
  options: { nodes: number("8"), models: number("20"), clients: number("500"), requests: number("20") },
});
const bench = await bootInference();
const seen = await runFleet(bench, bench.token, {
  nodes: Number(values.nodes),
  models: Number(values.models),
  clients: Number(values.clients),
  requestsEach: Number(values.requests),
  minimumMs: 5_000,
  loadMs: 1_000,
});
await bench.stop();
console.log(JSON.stringify(seen, null, 2));
const bad = Object.keys(seen.outcomes).filter((each) => each !== "answered" && each !== "429");
process.exit(bad.length > 0 || seen.isOverfull || Math.max(...seen.loads) > seen.loadsMax ? 1 : 0);
