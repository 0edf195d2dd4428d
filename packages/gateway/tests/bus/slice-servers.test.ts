/** The scripts on Redis answer as the supervisor of workers does, on whose servers the model check runs. */
import { afterAll, describe, expect, test } from "bun:test";
import { Seeded } from "@model-gateway/testing/seeded.ts";
import { RedisLimits } from "../../src/bus/redis/limits.ts";
import { RedisPurses } from "../../src/bus/redis/purses.ts";
import { RedisScripts } from "../../src/bus/redis/scripts.ts";
import type { LimitOrder, PurseAsk, PurseOrder } from "../../src/bus/slices/contract.ts";
import { MemoryLimits } from "../../src/bus/slices/memory-limits.ts";
import { MemoryPurses } from "../../src/bus/slices/memory-purses.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";

const url = process.env.TEST_REDIS_URL;
const seed = Date.now() % 1e6;
const random = new Seeded(seed);
const below = (n: number): number => Math.floor(random.next() * n);
const oneOf = <T>(values: readonly T[]): T => values[below(values.length)]!;
const INFINITE = Number.POSITIVE_INFINITY;

/** Final: what a recall does depends on the time, which is not the same on both. */
const ask = (): PurseAsk => {
  const unitsMin = below(6);
  return {
    limit: oneOf([
      { money: 200, tokens: INFINITE },
      { money: 3_000, tokens: 900 },
    ]),
    spent: { money: below(50), tokens: below(20), version: below(4) },
    unitsBeyond: oneOf([null, null, 5]),
    cost: {
      fixed: { money: below(20), tokens: below(5) },
      perUnit: { money: oneOf([0, 0.25, 1, 2.5]), tokens: oneOf([0, 1]) },
    },
    unitsMin,
    unitsMax: unitsMin + below(20),
    isFinal: true,
  };
};

describe.if(url !== undefined)(`scripts on Redis (seed ${seed})`, () => {
  const client = new Bun.RedisClient(url!);
  const scripts = new RedisScripts({
    server: { client, connected: true },
    clock: systemClock,
    log: silentLog,
  });
  afterAll(() => {
    scripts.close();
    client.close();
  });

  test("count what instances hold, ahead of need too, as in memory", async () => {
    const redis = new RedisPurses(scripts, crypto.randomUUID());
    const memory = new MemoryPurses(systemClock);
    const instances = ["a", "b", "c"];
    expect(await redis.hold("a", [])).toBe(null);
    for (const each of instances) {
      const spent = { money: below(60), tokens: below(9), version: below(4) };
      const holdings = [{ name: "p", base: { money: below(30), tokens: 0 }, spent }];
      expect(await redis.enter(each, "", holdings)).toBe("memory a");
      memory.enter(each, "", holdings);
    }
    for (let i = 0; i < 400; i++) {
      const instance = oneOf(instances);
      const names = ["p", "q", "r"].filter(() => random.next() < 0.5);
      const orders = names.map(
        (name): PurseOrder => ({
          name,
          base: { money: below(60), tokens: below(60) },
          spent: random.next() < 0.2 ? { money: below(60), tokens: below(9), version: below(4) } : null,
          asks: Array.from({ length: below(4) }, ask),
          ahead: { money: below(80), tokens: below(40) },
        }),
      );
      expect(await redis.hold(instance, orders)).toEqual(memory.hold(instance, orders));
    }
    for (const server of [redis, memory]) {
      await server.leave("b");
      expect([await server.beat("a"), await server.beat("b")]).toEqual([true, false]);
      expect(await server.hold("b", [])).toBe(null);
    }
  });

  test("count hits, slices of them, and what goes back of a slice, as in memory", async () => {
    const redis = new RedisLimits(scripts, crypto.randomUUID());
    const memory = new MemoryLimits(systemClock);
    const slices: { key: string; onRedis: string; inMemory: string; hits: number }[] = [];
    for (let i = 0; i < 300; i++) {
      const key = oneOf(["k", "l"]);
      const limit = key === "k" ? 400 : 2_000;
      const at = slices.findIndex((slice) => slice.key === key);
      const [ended] = at >= 0 && random.next() < 0.5 ? slices.splice(at, 1) : [];
      const order = { key, limit, windowMs: 600_000, hits: below(6), ahead: below(30), isFinal: true };
      const unused = ended ? below(ended.hits + 1) : 0;
      const ofSlice = (slice: string | undefined): LimitOrder => ({
        ...order,
        ended: slice === undefined ? null : { slice, unused },
      });
      const [onRedis] = await redis.hit([ofSlice(ended?.onRedis)]);
      const [inMemory] = memory.hit([ofSlice(ended?.inMemory)]);
      const { counted, ahead } = inMemory!;
      expect({ counted: onRedis!.counted, ahead: onRedis!.ahead }).toEqual({ counted, ahead });
      expect(onRedis!.waitMs > 0).toBe(inMemory!.waitMs > 0);
      if (ahead > 0) slices.push({ key, onRedis: onRedis!.slice, inMemory: inMemory!.slice, hits: ahead });
    }
  });

  test("do not take a slice of a forgotten key for another one", async () => {
    const redis = new RedisLimits(scripts, crypto.randomUUID());
    const order = { key: "k", limit: 320, windowMs: 600_000, isFinal: true };
    const [first] = await redis.hit([{ ...order, hits: 1, ahead: 10, ended: null }]);
    for (const key of await client.send("KEYS", ["gateway:*:limit:k"])) await client.del(key);
    await redis.hit([{ ...order, hits: 200, ahead: 0, ended: null }]);
    await redis.hit([{ ...order, hits: 100, ahead: 0, ended: null }]);
    const ended = { slice: first!.slice, unused: 10 };
    const [after] = await redis.hit([{ ...order, hits: 30, ahead: 0, ended }]);
    expect(after!.counted).toBe(20);
  });
});
