/** Feeds the parsers at the edges with inputs made from right ones, for the given time. The tests do it for seconds. */

import { Fuzzing, PARSERS } from "../tests/fuzz/run.ts";
import { parseArgs } from "./lib/args.ts";

const HELP = `Fuzzes the parsers at the edges of the service

  npm run fuzz -- [options]

  --minutes <n>    how long in all (default: 5)
  --parser <name>  only this one: ${PARSERS.map(({ name }) => name).join(", ")}
  --seed <n>       seed of the first input (default: random; it is printed)
  --help           this text

A finding is printed with its seed and its bytes; once mended it belongs into tests/fuzz/cases.ts.
Exit status: 0 nothing found, 1 something found, 2 it could not be run.
`;
const TURN_MS = 500;
const FINDINGS_MAX = 5;

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "5" },
    parser: { type: "string" },
    seed: { type: "string" },
    help: { type: "boolean", short: "h", default: false },
  },
});

function stopWith(problem: string): never {
  console.error(`${problem}; --help lists the options`);
  process.exit(2);
}

if (values.help) {
  console.log(HELP);
  process.exit(0);
}
const minutes = Number(values.minutes);
if (!(minutes > 0)) stopWith("--minutes must be a number above 0");
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
if (!Number.isInteger(seed)) stopWith("--seed must be a whole number");
const chosen = PARSERS.filter(({ name }) => values.parser === undefined || name === values.parser);
if (chosen.length === 0) stopWith(`there is no parser ${values.parser}`);

console.log(`seed ${seed}`);
const all = chosen.map((parser) => ({
  fuzzing: new Fuzzing(parser, seed),
  found: new Map<string, string>(),
}));
const untilMs = performance.now() + minutes * 60_000;
while (performance.now() < untilMs) {
  for (const { fuzzing, found } of all) {
    const turnEndsMs = performance.now() + TURN_MS;
    while (performance.now() < turnEndsMs && found.size < FINDINGS_MAX) {
      const finding = await fuzzing.next();
      if (!finding || found.has(finding.problem.slice(0, 60))) continue;
      found.set(finding.problem.slice(0, 60), finding.base64);
      console.log(JSON.stringify(finding));
    }
  }
}
for (const { fuzzing, found } of all)
  console.log(`${fuzzing.parser.name}: ${fuzzing.count} inputs, ${found.size} findings`);
process.exit(all.some(({ found }) => found.size > 0) ? 1 : 0);
