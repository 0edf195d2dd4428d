/**
 * `npm run chaos`: the service under load while its processes are killed and frozen, its network is cut, its disk
 * fills and its clock jumps; afterwards everything that was written down must agree. docs/reliability.md says what
 * is checked. The tests run it for half a minute.
 *
 *   npm run chaos -- --minutes 10
 *   npm run chaos -- --minutes 10 --workers 4
 *   npm run chaos -- --minutes 10 --database postgres --instances 3
 *   npm run chaos -- --seed 1234 --minutes 1       the same faults again
 *   npm run chaos -- --route-chats 10000           chats to a route whose backends are killed, frozen or limited
 *
 *   --minutes <n>       how long faults go on (default: 1)
 *   --seed <n>          decides requests and faults (default: random; it is printed)
 *   --database <name>   sqlite or postgres, which brings a Redis (default: sqlite)
 *   --instances <n>     processes of the service, 1 to 8; more than one needs --database postgres (default: 1)
 *   --workers <n>       processes of each instance that share its port (default: 1)
 *   --lanes <n>         clients at once (default: 16)
 *   --keep              keep the records of clients, upstreams and faults, in the current folder
 *
 * Exit status: 0 nothing is wrong, 1 something is, 2 it could not be run.
 */
import "./lib/help.ts";
import { parseArgs } from "./lib/args.ts";

const options = {
  minutes: { type: "string", default: "1" },
  seed: { type: "string" },
  database: { type: "string", default: "sqlite" },
  instances: { type: "string", default: "1" },
  workers: { type: "string", default: "1" },
  lanes: { type: "string", default: "16" },
  keep: { type: "boolean", default: false },
  "route-chats": { type: "string" },
} as const;

const SEED_MAX = 2 ** 31 - 1;
const PACE = { pauseMsMax: 1_500, holdMsMax: 6_000 };

function stopWith(problem: string): never {
  console.error(`Cannot run: ${problem}; --help lists the options`);
  process.exit(2);
}

function readOptions() {
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  // A number alone has always meant chats to a route.
  return { ...values, "route-chats": values["route-chats"] ?? positionals[0] };
}

const values = readOptions();

function numberOf(
  name: "minutes" | "seed" | "instances" | "workers" | "lanes" | "route-chats",
  min: number,
  max: number,
) {
  const number = Number(values[name]);
  if (!(number >= min && number <= max)) stopWith(`--${name} must be a number from ${min} to ${max}`);
  return number;
}

if (values["route-chats"] !== undefined) {
  const { runRouteChaos } = await import("../packages/gateway/tests/routing/chaos.ts");
  const result = await runRouteChaos(numberOf("route-chats", 1, 1e7));
  console.log(JSON.stringify(result));
  process.exit(result.failed === 0 ? 0 : 1);
}

const { database } = values;
if (database !== "sqlite" && database !== "postgres") stopWith("--database must be sqlite or postgres");
const instances = Math.floor(numberOf("instances", 1, 8));
if (instances > 1 && database === "sqlite") stopWith("several instances need --database postgres");
const workers = Math.floor(numberOf("workers", 1, 8));
const seed =
  values.seed === undefined
    ? Math.floor(Math.random() * SEED_MAX)
    : Math.floor(numberOf("seed", 0, SEED_MAX));
const minutes = numberOf("minutes", 0.1, 10_000);
const lanes = Math.floor(numberOf("lanes", 1, 1_000));

const { runChaos } = await import("../tests/chaos/run.ts");
const { closeWorlds } = await import("../tests/chaos/world.ts");
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.on(signal, () => void closeWorlds().finally(() => process.exit(130)));

console.log(
  `seed ${seed}: ${minutes} minutes, ${instances} instance(s) of ${workers} process(es) on ${database}`,
);
const report = await runChaos({
  database,
  instances,
  workers,
  seed,
  temper: "wild",
  lanes,
  faults: { durationMs: minutes * 60_000, faultsMax: Number.POSITIVE_INFINITY, pace: PACE },
  keep: values.keep,
  say: console.log,
});
const { operations, refusals, rows, faults, missing, problems, dir } = report;
console.log(
  `${operations.ok} answered, ${operations.fail} refused, ${operations.unknown} unknown; ${rows} rows`,
);
console.log(`refused by status: ${JSON.stringify(refusals)}`);
console.log(`faults: ${JSON.stringify(faults)}`);
for (const { name, rssMbBefore, rssMbAfter } of report.instances) {
  const before = rssMbBefore === null ? "started a moment ago" : `${Math.round(rssMbBefore)} MB early on`;
  console.log(`${name}: ${before}, ${Math.round(rssMbAfter)} MB at the end, of the process that grew most`);
}
for (const what of missing) console.log(`left out: ${what}`);
if (dir) console.log(`records: ${dir}`);
for (const { rule, message } of problems) console.log(`${rule}: ${message}`);
console.log(problems.length === 0 ? "nothing is wrong" : `${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);
