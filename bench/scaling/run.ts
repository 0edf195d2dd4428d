/**
 * `npm run simulate`: the service at 10³ to 10⁷ requests a minute, as far as costs measured on this machine tell:
 * how many of each part, what waits on a bad day, and what breaks first. Costs come from docs/performance.json;
 * how long settling locks rows that instances share is measured on a Postgres of its own. `--write-docs` puts the tables into docs/scaling.md.
 */
import "../../scripts/lib/help.ts";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { startServices } from "@model-gateway/testing/services.ts";
import { parseArgs } from "../../scripts/lib/args.ts";
import { Lookup, markdownTable } from "../docs/lookup.ts";
import { writeBlocks } from "../docs/write.ts";
import type { Results } from "../lib/figures.ts";
import { type LockTimes, measureLocks } from "./locks.ts";
import { afterOutage, badDay, type Costs, overloaded, type Plant, sized } from "./plant.ts";

const TOKENS = 100;
const ORDERS = [3, 4, 5, 6, 7];

async function lockTimes(): Promise<LockTimes> {
  const services = await startServices();
  const url = services.env.TEST_POSTGRES_URL;
  if (!url) throw new Error(`it needs a Postgres: ${services.missing.join(", ")}`);
  try {
    return await measureLocks(url);
  } finally {
    services.stop();
  }
}

const { values: flags } = parseArgs({ options: { "write-docs": { type: "boolean", default: false } } });
const results = JSON.parse(
  readFileSync(join(import.meta.dir, "../../docs/performance.json"), "utf8"),
) as Results;
const measured = new Lookup(results);
const PAID = "request paid in points, shared";
const costs: Costs = {
  tokens: TOKENS,
  tokenMs: measured.value("streamed token, shared") / 1000,
  redisMs: measured.value(PAID, "redis") / 1000,
  postgresMs: measured.value(PAID, "postgres") / 1000,
  ...(await lockTimes()),
};

const shown = (ms: number) =>
  ms < 10 ? `${ms.toPrecision(2)} ms` : ms < 10_000 ? `${Math.round(ms)} ms` : `${Math.round(ms / 1000)} s`;
const many = (value: number) => Number(value.toPrecision(2)).toLocaleString("en");
const percent = (share: number) => `${Number((share * 100).toPrecision(2))} %`;
const plants = ORDERS.map((order) => sized(10 ** order, costs));
const row = (name: string, cell: (plant: Plant) => string) => [name, ...plants.map(cell)];
const days = plants.map((plant) => badDay(plant, costs));
const dayRow = (name: string, of: (day: (typeof days)[number]) => number) => [
  name,
  ...days.map((day) => shown(of(day))),
];

const table = markdownTable(
  ["Requests a minute", "10³", "10⁴", "10⁵", "10⁶", "10⁷"],
  [
    row("instances", ({ instances }) => many(instances)),
    row("Redis servers", ({ redisShards }) => many(redisShards)),
    row("cores of Postgres", ({ postgresCores }) => many(postgresCores)),
    row("updates a second of a row that all share", ({ hotRowUpdates }) => many(hotRowUpdates)),
    dayRow("p99 added, calm", ({ calmMs }) => calmMs),
    dayRow("in a burst of twice as many for 10 s", ({ burstMs }) => burstMs),
    dayRow("with one instance dead", ({ lostMs }) => lostMs),
    dayRow("while a Redis server fails over", ({ failoverMs }) => failoverMs),
    row("rows that wait on each instance after 60 s without Postgres", (plant) =>
      many(afterOutage(plant, costs).rows),
    ),
    row("settled again after", (plant) => shown(afterOutage(plant, costs).drainedAfterS * 1000)),
    row(
      "beyond 60 %, with one Redis and one Postgres of 32 cores",
      (plant) =>
        overloaded(plant, costs)
          .map(([part, use]) => `${part}: ${percent(use)}`)
          .join(", ") || "nothing",
    ),
  ],
);
const locked = (ms: number) => `${Math.round(ms * 1000)} µs`;
const note = `Paid in points, a tenth of it by one pool, ${TOKENS} streamed tokens each, all parts below 60 % of their cores when calm. Settling a request takes ${locked(costs.poolMs)} of processor time while the pool's row is locked, and ${locked(costs.spentMs)} while a row of spent points is.`;
console.log(`${note}\n\n${table}`);
if (flags["write-docs"]) writeBlocks("scaling.md", { simulation: `${note}\n\n${table}` });
