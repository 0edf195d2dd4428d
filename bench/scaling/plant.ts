/** A whole service of so many instances, with its Redis and Postgres: how large it has to be, and what a bad day does. */
import { BATCH_ROWS_MAX, GATHER_MS } from "../../packages/gateway/src/rooms/metering/journal/writer.ts";
import { percentile, randomOf, type Spell, staysIn, visit } from "./queue.ts";

/** Processor time: a streamed token on an instance, a request paid in points in Redis and in Postgres. */
export interface Costs {
  tokens: number;
  tokenMs: number;
  redisMs: number;
  postgresMs: number;
  /** How long a request keeps its pool's row and the account of spent points locked while it is settled. */
  poolMs: number;
  spentMs: number;
}

export interface Plant {
  perSecond: number;
  instances: number;
  /** Redis servers that share the limits and holds by name. */
  redisShards: number;
  postgresCores: number;
  /** Updates a second of the row of a pool that all spend from. */
  hotRowUpdates: number;
}

/** Of a core that may be planned with. */
const USE = 0.6;
/** Rows of the account of spent points. */
const SPENT_ROWS = 16;
/** Of all requests, those that the busiest pool pays for. */
const BUSIEST_POOL = 0.1;

/** As many of each as keep all of them below 60 % of their cores. */
export function sized(perMinute: number, costs: Costs): Plant {
  const perSecond = perMinute / 60;
  const needed = (ms: number) => Math.max(1, Math.ceil((perSecond * ms) / 1000 / USE));
  const instances = needed(costs.tokens * costs.tokenMs);
  const settlements = Math.max((1000 * instances) / GATHER_MS, perSecond / BATCH_ROWS_MAX);
  return {
    perSecond,
    instances,
    redisShards: needed(costs.redisMs),
    postgresCores: needed(costs.postgresMs),
    hotRowUpdates: Math.min(perSecond, settlements),
  };
}

/** How far each part is used, if there is one of it where more than one needs work on our side. */
export function uses(plant: Plant, costs: Costs): Record<string, number> {
  const { perSecond, instances, postgresCores } = plant;
  return {
    "the instances' cores": (perSecond * costs.tokens * costs.tokenMs) / 1000 / instances,
    "the one thread of one Redis": (perSecond * costs.redisMs) / 1000,
    "the busiest pool's row": (perSecond * BUSIEST_POOL * costs.poolMs) / 1000,
    "a row of spent points": (perSecond * costs.spentMs) / 1000 / SPENT_ROWS,
    "cores of one Postgres":
      (perSecond * costs.postgresMs) / 1000 / Math.max(postgresCores, POSTGRES_CORES_MAX),
  };
}

/** The largest Postgres that people rent without a second thought. */
const POSTGRES_CORES_MAX = 32;

/** What does not hold, the worst first: what is used beyond what may be planned with. */
export const overloaded = (plant: Plant, costs: Costs): [part: string, use: number][] =>
  Object.entries(uses(plant, costs))
    .filter(([, use]) => use > USE)
    .sort(([, a], [, b]) => b - a);

const second = (from: number, until: number): Spell => ({ fromMs: from * 1000, untilMs: until * 1000 });
const DAY = {
  calm: second(5, 40),
  /** Twice as many requests for ten seconds. */
  burst: second(40, 50),
  /** One instance is dead; the others have its share until it is replaced. */
  lost: second(70, 100),
  /** A Redis server is away. Instances wait for it for so long, then go on by what they know. */
  failover: { fromMs: 110_000, untilMs: 110_500 },
  forMs: 140_000,
};
const BURST = 2;

export interface Outcome {
  calmMs: number;
  burstMs: number;
  lostMs: number;
  failoverMs: number;
}

/** The 99th percentile of what the service adds in each part of such a day, in its own queues and those of Redis. */
export function badDay(plant: Plant, costs: Costs, seed = 1): Outcome {
  const { perSecond, instances, redisShards } = plant;
  const within = (atMs: number, { fromMs, untilMs }: Spell) => atMs >= fromMs && atMs < untilMs;
  const rate = (atMs: number) => perSecond * (within(atMs, DAY.burst) ? BURST : 1);
  const share = (atMs: number) => (within(atMs, DAY.lost) && instances > 1 ? instances - 1 : instances);
  const random = randomOf(seed);
  const { forMs } = DAY;
  // All instances and all shards are alike, so one of each is enough.
  const instance = visit(
    {
      perSecond: (atMs) => (rate(atMs) * costs.tokens) / share(atMs),
      serviceMs: costs.tokenMs,
      outages: [],
      forMs,
    },
    random,
  );
  const redis = visit(
    {
      perSecond: (atMs) => rate(atMs) / redisShards,
      serviceMs: costs.redisMs,
      outages: [DAY.failover],
      forMs,
    },
    random,
  );
  const p99 = (spell: Spell) => {
    const [own, shared] = [staysIn(instance, spell), staysIn(redis, spell)];
    // Both waits of a request, drawn together: they have nothing to do with each other.
    const sums = own.map((ms) => ms + shared[Math.floor(random() * shared.length)]!);
    return percentile(sums, 0.99);
  };
  return {
    calmMs: p99(DAY.calm),
    burstMs: p99(DAY.burst),
    lostMs: p99(DAY.lost),
    failoverMs: p99(DAY.failover),
  };
}

/** Rows that wait on each instance's disk after a minute without Postgres, and how long settling them takes. */
export function afterOutage({ perSecond, instances, postgresCores }: Plant, { postgresMs }: Costs) {
  const rowsPerSecond = perSecond / instances;
  const rows = rowsPerSecond * 60;
  // What Postgres can do beyond what comes in meanwhile.
  const spare = (postgresCores * 1000) / postgresMs / instances - rowsPerSecond;
  return { rows, drainedAfterS: rows / spare };
}
