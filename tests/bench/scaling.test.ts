import { describe, expect, test } from "bun:test";
import { afterOutage, badDay, type Costs, overloaded, sized } from "../../bench/scaling/plant.ts";
import { percentile, randomOf, staysIn, visit } from "../../bench/scaling/queue.ts";

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

describe("a queue in front of one server", () => {
  test("waits as long as queueing theory says", () => {
    for (const use of [0.3, 0.6, 0.8]) {
      const serviceMs = 1;
      const load = { perSecond: () => use * 1000, serviceMs, outages: [], forMs: 400_000 };
      const { stayMs } = visit(load, randomOf(7));
      // Pollaczek-Khinchine for constant service times.
      const expectedMs = serviceMs + (use * serviceMs) / (2 * (1 - use));
      expect(Math.abs(mean(stayMs) / expectedMs - 1)).toBeLessThan(0.03);
    }
  });

  test("who comes while the server is away waits until it is back, and those behind wait for them", () => {
    const outage = { fromMs: 1_000, untilMs: 2_000 };
    const visits = visit(
      { perSecond: () => 100, serviceMs: 1, outages: [outage], forMs: 10_000 },
      randomOf(7),
    );
    const [first] = staysIn(visits, outage);
    expect(first).toBeGreaterThan(900);
    expect(percentile(staysIn(visits, { fromMs: 5_000, untilMs: 10_000 }), 0.99)).toBeLessThan(20);
  });

  test("the same seed gives the same day", () => {
    const load = { perSecond: () => 50, serviceMs: 5, outages: [], forMs: 5_000 };
    expect(visit(load, randomOf(3))).toEqual(visit(load, randomOf(3)));
    expect(visit(load, randomOf(3))).not.toEqual(visit(load, randomOf(4)));
  });
});

describe("a plant", () => {
  const costs: Costs = {
    tokens: 100,
    tokenMs: 0.036,
    redisMs: 0.08,
    postgresMs: 0.06,
    poolMs: 0.08,
    spentMs: 0.02,
  };

  test("is as large as it must be, and no larger", () => {
    expect(sized(1_000, costs)).toMatchObject({ instances: 1, redisShards: 1, postgresCores: 1 });
    const { instances } = sized(1_000_000, costs);
    const cores = ((1_000_000 / 60) * costs.tokens * costs.tokenMs) / 1000;
    expect(cores / instances).toBeLessThanOrEqual(0.6);
    expect(cores / (instances - 1)).toBeGreaterThan(0.6);
  });

  test("says what does not hold, the worst first", () => {
    expect(overloaded(sized(10_000, costs), costs)).toEqual([]);
    const parts = overloaded(sized(10_000_000, costs), costs).map(([part]) => part);
    expect(parts.slice(0, 2)).toEqual(["the one thread of one Redis", "the busiest pool's row"]);
  });

  test("has worse days than calm ones, and settles what has waited", () => {
    const plant = sized(100_000, costs);
    const day = badDay(plant, costs);
    expect(day.burstMs).toBeGreaterThan(day.calmMs);
    expect(day.failoverMs).toBeGreaterThan(day.calmMs);
    const { rows, drainedAfterS } = afterOutage(plant, costs);
    expect(Math.round(rows * plant.instances)).toBe(100_000);
    expect(drainedAfterS).toBeGreaterThan(0);
  });
});
