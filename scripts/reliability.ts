/**
 * `npm run reliability -- <figure>`: the figures of docs/reliability.md, each measured on real processes with a
 * Postgres and a Redis of their own where they need one.
 *
 *   npm run reliability -- pool --times 100        1,000 requests at once on a pool for ten, three instances
 *   npm run reliability -- aborts --times 1000     clients leave; how soon the upstream is closed
 *   npm run reliability -- outages --seconds 60    Postgres and Redis away, frozen and slow, under load
 *   npm run reliability -- disk --seconds 10       a disk that is full for so long, five times, SQLite and Postgres
 *   npm run reliability -- rolling --times 500     three instances restarted one by one under so many streams
 *   npm run reliability -- idle --times 10000      so many idle connections of each kind
 *   npm run reliability -- soak --minutes 120      at 80 % of what the machine can do
 *
 * Exit status: 0 the figure is what the document promises, 1 it is not, 2 it could not be run.
 */
import "./lib/help.ts";
import { measureAborts } from "../tests/chaos/numbers/aborts.ts";
import { measureIdle } from "../tests/chaos/numbers/idle.ts";
import { measureOutages } from "../tests/chaos/numbers/outages.ts";
import type { Outcome } from "../tests/chaos/numbers/outcome.ts";
import { measurePool } from "../tests/chaos/numbers/pool.ts";
import { measureRolling } from "../tests/chaos/numbers/rolling.ts";
import { measureSoak } from "../tests/chaos/numbers/soak.ts";
import { closeWorlds } from "../tests/chaos/world.ts";
import { parseArgs } from "./lib/args.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { times: { type: "string" }, seconds: { type: "string" }, minutes: { type: "string" } },
});

function numberOf(name: keyof typeof values, usual: number): number {
  const number = Number(values[name] ?? usual);
  if (number > 0 && number <= 1e7) return number;
  console.error(`--${name} must be a number above 0`);
  process.exit(2);
}

const say = (line: string) => console.log(`  ${line}`);
const shared = { database: "postgres", instances: 3, times: 1, say } as const;
const merged = async (outcomes: Promise<Outcome>[]): Promise<Outcome> => {
  const all = await Promise.all(outcomes);
  return { lines: all.flatMap(({ lines }) => lines), isSound: all.every(({ isSound }) => isSound) };
};

const figures: Record<string, () => Promise<Outcome>> = {
  pool: () => measurePool(numberOf("times", 100), say),
  aborts: () => measureAborts(numberOf("times", 1_000)),
  // Two services that share nothing, so that the outages of one pass while those of the other do.
  outages: () => {
    const seconds = numberOf("seconds", 60);
    return merged([
      measureOutages({ ...shared, of: "Postgres", seconds }),
      measureOutages({ ...shared, of: "Redis", seconds }),
    ]);
  },
  disk: () => {
    const full = { ...shared, of: "disk", seconds: numberOf("seconds", 10), times: 5 } as const;
    return merged([measureOutages({ ...full, database: "sqlite", instances: 1 }), measureOutages(full)]);
  },
  rolling: () => measureRolling(numberOf("times", 500)),
  idle: () => measureIdle(numberOf("times", 10_000), say),
  soak: () => measureSoak(numberOf("minutes", 120), say),
};

const [name = ""] = positionals;
const measure = figures[name];
if (!measure) {
  console.error(`${name || "nothing"} is not a figure; these are: ${Object.keys(figures).join(", ")}`);
  process.exit(2);
}
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.on(signal, () => void closeWorlds().finally(() => process.exit(130)));
const { lines, isSound } = await measure();
for (const line of lines) console.log(line);
console.log(isSound ? "as promised" : "NOT as promised");
process.exit(isSound ? 0 : 1);
