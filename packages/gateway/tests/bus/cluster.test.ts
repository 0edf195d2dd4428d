/** Limits, holds and messages over a real Redis Cluster, each instance told of another node. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { redisCommand, startRedisCluster } from "@model-gateway/testing/services.ts";
import { until } from "@model-gateway/testing/until.ts";
import { forgetShared } from "../../../cli/src/service/postgres-tools.ts";
import { REFUSED } from "../../src/bus/contract.ts";
import { openBus, type Shared } from "../../src/bus/index.ts";
import { slotOf } from "../../src/bus/redis/cluster.ts";
import { CLUSTER_GROUPS } from "../../src/bus/redis/index.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";

type Cluster = Awaited<ReturnType<typeof startRedisCluster>>;
const POOLS = 24;
const ROOM = 10;
const NOTHING = { money: 0, tokens: 0 };

/** One of those that the pool has room for. */
const holdOne = async ({ reservations }: Shared, name: string): Promise<boolean> => {
  const purse = {
    name,
    limit: { money: ROOM, tokens: 0 },
    spent: { ...NOTHING, version: 0 },
    unitsBeyond: null,
  };
  const fixed = { money: 1, tokens: 0 };
  const one = { purses: [purse], alsoOn: [], fixed, perUnit: NOTHING, unitsMin: 0, unitsMax: 0 };
  return (await reservations.grant(one)) !== REFUSED;
};
const giveBack = ({ reservations }: Shared, name: string): void =>
  reservations.change([{ name, amount: { money: -1, tokens: 0 } }]);

test("the slot of a key is the one that Redis says", () => {
  expect(["123456789", "", "foo"].map(slotOf)).toEqual([0x31c3, 0, 12182]);
});

describe.if(process.env.TEST_REDIS_URL !== undefined)("a Redis Cluster", () => {
  const dir = mkdtempSync(join(tmpdir(), "gateway-cluster-"));
  /** How often an instance has found a node unreachable. */
  let outages = 0;
  const log = {
    ...silentLog,
    warn: (message: string) => {
      if (message.startsWith("Redis is unreachable")) outages++;
    },
  };
  let cluster: Cluster;
  let instances: Shared[];
  const pools = Array.from({ length: POOLS }, (_, i) => `pool ${i}`);

  beforeAll(async () => {
    cluster = await startRedisCluster(dir, 1);
    instances = await Promise.all(
      cluster.primaries.map(({ url }) => openBus({ redisUrl: url, clock: systemClock, ids: randomIds, log })),
    );
    await Promise.all(instances.map(({ bus }) => bus.ready()));
  }, 60_000);
  afterAll(async () => {
    for (const { close } of instances ?? []) await close();
    cluster?.stop();
    rmSync(dir, { recursive: true, force: true });
  });

  /** Who holds one of each pool's places. */
  const holders = new Map<string, Shared[]>(pools.map((pool) => [pool, []]));
  const heldIn = (pool: string): number => holders.get(pool)!.length;
  const hold = async (instance: Shared, pool: string): Promise<boolean> => {
    const isHeld = await holdOne(instance, pool);
    if (isHeld) holders.get(pool)!.push(instance);
    return isHeld;
  };
  const holdAtOnce = (each: number) =>
    Promise.all(
      pools.flatMap((pool) => Array.from({ length: each }, (_, i) => hold(instances[i % 3]!, pool))),
    );

  test("admits exactly what each pool has room for, with its keys on every primary", async () => {
    await holdAtOnce(30);
    expect(pools.map(heldIn)).toEqual(Array(POOLS).fill(ROOM));
    for (const { url } of cluster.primaries)
      expect(Number(await redisCommand(url, "DBSIZE"))).toBeGreaterThan(3);
  });

  test("limits are exact over instances that know different nodes", async () => {
    for (const key of Array.from({ length: 12 }, () => crypto.randomUUID())) {
      const waits = await Promise.all(
        Array.from({ length: 30 }, (_, i) => instances[i % 3]!.limiter.hit(key, ROOM, 60_000)),
      );
      expect(waits.filter((waitMs) => waitMs === 0)).toHaveLength(ROOM);
    }
  });

  test("messages reach instances on other nodes", async () => {
    const heard: string[] = [];
    await instances[2]!.bus.subscribe("topic", (message) => heard.push(message)).ready;
    await until("the message arrives", () => {
      instances[0]!.bus.publish("topic", "hello");
      return heard.includes("hello");
    });
  });

  test("a primary that dies under load is replaced: others are exact all the time, its own again afterwards", async () => {
    const [dying] = cluster.primaries;
    const [heir] = cluster.replicas;
    const dyingSlots = (await redisCommand(dying!.url, "CLUSTER", "SLOTS")) as [
      number,
      number,
      [string, number],
    ][];
    const [, dyingLast] = dyingSlots.find(([, , [, port]]) => port === dying!.port)!;
    const isOfDying = (pool: string) => slotOf(String(slotOf(pool) % CLUSTER_GROUPS)) <= dyingLast;
    const problems: string[] = [];
    let isOver = false;
    // Each takes what it can, and one place is given back for each that is tried: they wander between instances.
    const load = instances.map(async (instance) => {
      for (let turn = 0; !isOver; turn++) {
        const pool = pools[turn % POOLS]!;
        const holder = holders.get(pool)!.shift();
        if (holder) giveBack(holder, pool);
        await hold(instance, pool);
        if (heldIn(pool) > ROOM && !isOfDying(pool)) problems.push(`${pool}: ${heldIn(pool)}`);
        await Bun.sleep(1);
      }
    });
    dying!.child.kill("SIGKILL");
    await until("the replica has taken over", async () =>
      String(await redisCommand(heir!.url, "INFO", "replication")).includes("role:master"),
    );
    isOver = true;
    await Promise.all(load);
    let tries = 0;
    await until("all of them count there", async () => {
      const fresh = Array.from({ length: 12 }, () => `fresh ${++tries}`).filter(isOfDying);
      const counts = await Promise.all(
        fresh.map(async (name) => {
          const held = Array.from({ length: ROOM + 2 }, (_, i) => holdOne(instances[i % 3]!, name));
          return (await Promise.all(held)).filter(Boolean).length;
        }),
      );
      return counts.length > 0 && counts.every((count) => count === ROOM);
    });
    // A machine so busy that another node does not answer within half a second lets instances decide alone there, too.
    if (outages <= instances.length) expect(problems).toEqual([]);
    const groupsOfDying = pools.filter(isOfDying).length;
    expect(Math.min(groupsOfDying, POOLS - groupsOfDying)).toBeGreaterThan(0);
    // What was held, and what each instance has let in alone meanwhile, is known to all: the rest can be had, no more.
    const before = pools.map(heldIn);
    await until("the pools are full for everybody", async () => !(await holdAtOnce(3)).includes(true));
    expect(pools.map(heldIn)).toEqual(before.map((count) => Math.max(ROOM, count)));
  }, 90_000);

  test("a restored database empties it on every primary", async () => {
    await forgetShared(cluster.primaries[1]!.url);
    for (const { url } of [...cluster.primaries.slice(1), ...cluster.replicas]) {
      const keys = (await redisCommand(url, "KEYS", "gateway:*:hold:*")) as string[];
      expect(keys).toEqual([]);
    }
  });
});
