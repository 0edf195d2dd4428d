/**
 * Runs a dishonest client and a dishonest upstream against the real service for the given time: everything that
 * the upstream served must have been paid for. docs/metering.md says what is checked. The tests run it for seconds.
 */

import { startServices } from "@model-gateway/testing/services.ts";
import { parseArgs } from "./lib/args.ts";

const HELP = `A storm of dishonest requests against the service's metering

  npm run adversary -- [options]

  --minutes <n>      how long (default: 5)
  --seed <n>         seed of the first round (default: random; it is printed)
  --rounds <n>       stop after so many rounds, e.g. 1 to repeat one by its seed
  --database <name>  sqlite or postgres (default: sqlite)
  --instances <n>    processes of the service, 1 to 8; more than one needs --database postgres (default: 1)
  --worlds <n>       rounds side by side (default: 2)
  --kills <n>        rounds after that in which an instance is killed (default: 5, with --rounds 0)
  --shrink <seconds> how long each finding may be made smaller (default: 60)
  --help             this text

Exit status: 0 nothing found, 1 something found, 2 it could not be run, 130 interrupted with nothing found.
`;

const options = {
  minutes: { type: "string", default: "5" },
  seed: { type: "string" },
  rounds: { type: "string" },
  database: { type: "string", default: "sqlite" },
  instances: { type: "string", default: "1" },
  worlds: { type: "string", default: "2" },
  kills: { type: "string" },
  shrink: { type: "string", default: "60" },
  help: { type: "boolean", short: "h", default: false },
} as const;

function stopWith(problem: string): never {
  console.error(`The storm cannot begin: ${problem}; --help lists the options`);
  process.exit(2);
}

const { values } = parseArgs({ options });
if (values.help) {
  process.stdout.write(HELP);
  process.exit(0);
}

function numberOf(
  name: keyof typeof values,
  { min, max, whole = true }: { min: number; max: number; whole?: boolean },
): number {
  const number = Number(values[name]);
  if (!(number >= min && number <= max) || (whole && !Number.isInteger(number)))
    stopWith(`--${name} must be a ${whole ? "whole " : ""}number from ${min} to ${max}`);
  return number;
}

const { database } = values;
if (database !== "sqlite" && database !== "postgres") stopWith("--database must be sqlite or postgres");
const instances = numberOf("instances", { min: 1, max: 8 });
if (instances > 1 && database === "sqlite") stopWith("several instances need --database postgres");
const SEED_MAX = 2 ** 31 - 1;
const seed =
  values.seed === undefined
    ? Math.floor(Math.random() * SEED_MAX)
    : numberOf("seed", { min: 0, max: SEED_MAX });
const minutes = numberOf("minutes", { min: 0.01, max: 10_000, whole: false });
const roundsMax =
  values.rounds === undefined ? Number.POSITIVE_INFINITY : numberOf("rounds", { min: 1, max: 1e9 });
const worlds = numberOf("worlds", { min: 1, max: 16 });
const killsUsual = values.rounds === undefined ? 5 : 0;
const kills = values.kills === undefined ? killsUsual : numberOf("kills", { min: 0, max: 1e6 });
const shrinkMs = numberOf("shrink", { min: 0, max: 3_600 }) * 1_000;

const services = database === "postgres" ? await startServices() : null;
process.on("exit", () => services?.stop());
/** The first signal ends the storm and everything that it started; a second one does not wait for that. */
const interruption = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.on(signal, () => (interruption.signal.aborted ? process.exit(130) : interruption.abort()));
Object.assign(process.env, services?.env);

// Imported only now, because the databases that exist are read from the environment.
const { storm } = await import("../tests/adversary/storm.ts");

console.log(
  `seed ${seed}: ${minutes} minutes, ${instances} instance${instances > 1 ? "s" : ""} on ${database}`,
);
const { findings, tally } = await storm({
  database,
  instances,
  seed,
  worlds,
  kills,
  shrinkMs,
  roundsMax,
  durationMs: minutes * 60_000,
  say: console.log,
  interrupted: interruption.signal,
});
for (const line of tally.lines()) console.log(line);
for (const { rule, times, seed: at, message, plot } of findings)
  console.log(
    `\n${rule}: ${times}×, first with --seed ${at} --rounds 1\n  ${message}\n  ${JSON.stringify(plot)}`,
  );
if (interruption.signal.aborted) console.log("interrupted");
console.log(findings.length === 0 ? "nothing found" : `${findings.length} rules broken`);
process.exit(findings.length > 0 ? 1 : interruption.signal.aborted ? 130 : 0);
