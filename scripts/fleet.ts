/**
 * `npm run fleet [-- --nodes 8 --models 20 --clients 500 --requests 20 --faults]`
 *
 * A fleet without GPUs: nodes that hold a part of the models, clients with sessions, and models that are loaded on
 * demand. Prints what the clients got, how often each model was loaded, and how long a warm request took.
 *
 *   --faults      nodes are killed, cut off and frozen meanwhile; nothing may be lost, charged twice or left running
 *   --warm        instead: the p99 of warm requests while models are swapped beside them, against the same without
 */
import "./lib/help.ts";
import { booksOf, measureBesideSwaps, runFleet } from "../packages/gateway/tests/agents/simulated-fleet.ts";
import { bootInference } from "../packages/gateway/tests/support/inference.ts";
import { parseArgs } from "./lib/args.ts";

const number = (value: string) => ({ type: "string", default: value }) as const;
const flag = { type: "boolean", default: false } as const;
const { values } = parseArgs({
  options: {
    ...{ nodes: number("8"), models: number("20"), clients: number("500"), requests: number("20") },
    ...{ faults: flag, warm: flag },
  },
});
const bench = await bootInference();
if (values.warm) {
  const seen = await measureBesideSwaps(bench, bench.token, { rounds: 5, roundMs: 5_000, clients: 8 });
  await bench.stop();
  console.log(JSON.stringify(seen, null, 2));
  process.exit(0);
}
const seen = await runFleet(bench, bench.token, {
  nodes: Number(values.nodes),
  models: Number(values.models),
  clients: Number(values.clients),
  requestsEach: Number(values.requests),
  minimumMs: 5_000,
  loadMs: 1_000,
  ...(values.faults && { faults: { kinds: ["kill", "cut", "freeze"], everyMs: 500, awayMs: 2_000 } }),
});
const books = await booksOf(bench);
await bench.stop();
console.log(JSON.stringify({ ...seen, books }, null, 2));
const isCut = (outcome: string) =>
  values.faults && /the connection to the node ended|all backends unhealthy/.test(outcome);
const bad = Object.keys(seen.outcomes).filter(
  (each) => each !== "answered" && each !== "429" && !isCut(each),
);
const isBad =
  bad.length > 0 || seen.isOverfull || books.charged > seen.engineAsked || books.problems.length > 0;
const swapsTooOften = !values.faults && Math.max(...seen.loads) > seen.loadsMax;
process.exit(isBad || swapsTooOften ? 1 : 0);
