/** The script on Redis answers as the counter in memory does, on which the model check runs. */
import { afterAll, describe, expect, test } from "bun:test";
import { Seeded } from "@model-gateway/testing/seeded.ts";
import { NO_LIMIT, type Purse, type Quantity } from "../../src/bus/contract.ts";
import type { CounterAnswers, CounterAsk } from "../../src/bus/counter-server.ts";
import { MemoryCounter } from "../../src/bus/in-process/counter.ts";
import { RedisCounter } from "../../src/bus/redis/counter.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";

const url = process.env.TEST_REDIS_URL;
const seed = Date.now() % 1e6;
const random = new Seeded(seed);
const below = (n: number): number => Math.floor(random.next() * n);
const oneOf = <T>(values: readonly T[]): T => values[below(values.length)]!;
const run = crypto.randomUUID();
const names = ["p", "q", "r"].map((name) => `${name} ${run}`);
const some = () => names.filter(() => random.next() < 0.5);
const quantity = (most: number): Quantity => ({ money: below(most), tokens: below(most) });
const spent = () => ({ ...quantity(50), version: below(6) });
const cost = () => ({
  fixed: quantity(20),
  perUnit: { money: oneOf([0, 0.25, 1, 2.5]), tokens: oneOf([0, 1]) },
});

const purse = (name: string): Purse => ({
  name,
  limit: oneOf([
    { money: 200, tokens: NO_LIMIT },
    { money: 3_000, tokens: 900 },
  ]),
  spent: spent(),
  unitsBeyond: oneOf([null, null, 5]),
  ...(random.next() < 0.3 && { cost: cost() }),
});

function ask(): CounterAsk {
  const kind = below(3);
  if (kind === 0) {
    const limits = [10, 400, 2_000].filter(() => random.next() < 0.6);
    return { hit: limits.map((max) => ({ key: `${max} ${run}`, max, windowMs: 600_000 })) };
  }
  if (kind === 1) {
    const unitsMin = below(6);
    const asking = { purses: some().map(purse), alsoOn: some(), ...cost() };
    return { grant: { ...asking, unitsMin, unitsMax: unitsMin + below(20) } };
  }
  const change = some().map((name) => {
    const amount = { money: below(30) - 20, tokens: below(30) - 20 };
    return { name, amount, ...(random.next() < 0.2 && { spent: spent() }) };
  });
  return { change };
}

describe.if(url !== undefined)(`the script on Redis (seed ${seed})`, () => {
  const client = new Bun.RedisClient(url!);
  const server = { client, connected: true };
  const redis = new RedisCounter({ prefix: "test:", server, clock: systemClock, log: silentLog });
  afterAll(() => {
    redis.close();
    client.close();
  });

  test("answers as the counter in memory does, whatever instances ask in one message", async () => {
    const memory = new MemoryCounter(systemClock);
    const instances = ["a", "b", "c"].map((each) => `${each} ${run}`);
    expect(await redis.ask(instances[0]!, [])).toBeNull();
    for (const each of instances) {
      await redis.enter(each);
      memory.enter(each);
    }
    /** How long to wait depends on two clocks. */
    const known = (said: CounterAnswers | null, asks: readonly CounterAsk[]) => ({
      ...said,
      answers: said?.answers.map((answer, i) => ("hit" in asks[i]! ? answer.slice(0, 1) : answer)),
    });
    for (let i = 0; i < 400; i++) {
      const instance = oneOf(instances);
      const asks = Array.from({ length: below(6) }, ask);
      const said = await redis.ask(instance, asks);
      expect(known(said, asks)).toEqual(known(memory.ask(instance, asks), asks));
    }
    await redis.leave([instances[1]!]);
    memory.leave([instances[1]!]);
    expect(await redis.ask(instances[1]!, [])).toBeNull();
    const rest = { grant: { purses: names.map(purse), alsoOn: [], ...cost(), unitsMin: 0, unitsMax: 9 } };
    expect(await redis.ask(instances[0]!, [rest])).toEqual(memory.ask(instances[0]!, [rest]));
  });
});
