import { beforeEach, describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import fc from "fast-check";
import { MemoryCounter } from "../../src/bus/in-process/counter.ts";

const WINDOW_MS = 60_000;
let clock: ManualClock;
let counter: MemoryCounter;
beforeEach(() => {
  clock = new ManualClock();
  counter = new MemoryCounter(clock);
});

const hit = (max: number, key = "k") => counter.hit([{ key, max, windowMs: WINDOW_MS }])?.waitMs ?? 0;
const hitTimes = (times: number, limit: number) =>
  Array.from({ length: times }, () => hit(limit)).filter((waitMs) => waitMs === 0).length;

describe("up to 1,024 hits", () => {
  test("as many as the limit says pass, and the next when the oldest is a window old", () => {
    expect(hitTimes(2, 3)).toBe(2);
    clock.advance(10_000);
    expect([hit(3), hit(3)]).toEqual([0, 50_000]);
    clock.advance(49_999);
    expect(hit(3)).toBe(1);
    clock.advance(1);
    expect([hit(3), hit(3), hit(3)]).toEqual([0, 0, 10_000]);
  });

  test("it agrees with a plain list of times, whatever comes in whatever order", () => {
    const steps = fc.array(fc.record({ limit: fc.integer({ min: 1, max: 40 }), waitMs: fc.nat(20_000) }), {
      maxLength: 200,
    });
    fc.assert(
      fc.property(steps, (list) => {
        let times: number[] = [];
        const key = crypto.randomUUID();
        for (const { limit, waitMs } of list) {
          clock.advance(waitMs);
          const now = clock.now();
          times = times.filter((time) => time + WINDOW_MS > now);
          const expected = times.length < limit ? 0 : times[0]! + WINDOW_MS - now;
          if (expected === 0) times.push(now);
          expect(hit(limit, key)).toBe(expected);
        }
      }),
    );
  });
});

describe("above", () => {
  const LIMIT = 100_000;

  test("exactly the limit passes in a burst, and again a window later", () => {
    expect(hitTimes(LIMIT + 10, LIMIT)).toBe(LIMIT);
    expect(hit(LIMIT)).toBe(WINDOW_MS);
    clock.advance(WINDOW_MS);
    expect(hitTimes(LIMIT + 10, LIMIT)).toBe(LIMIT);
  });

  test("no window ever holds more than the limit, and little less is let through", () => {
    const passed: number[] = [];
    for (let i = 0; i < 3_000; i++) {
      clock.advance(60);
      for (let j = 0; j < 50; j++) if (hit(20_000) === 0) passed.push(clock.now());
    }
    for (let i = 20_000; i < passed.length; i++)
      expect(passed[i]! - passed[i - 20_000]!).toBeGreaterThanOrEqual(WINDOW_MS);
    expect(passed.length).toBeGreaterThan(59_000);
  });
});

test("a changed limit counts what was before", () => {
  expect(hitTimes(5, 10)).toBe(5);
  expect(hit(5)).toBe(WINDOW_MS);
  expect(hit(6)).toBe(0);
});

test("more keys than are kept push out the oldest, and those that are past first", () => {
  for (let i = 0; i < 40_000; i++) hit(1, `old-${i}`);
  clock.advance(WINDOW_MS);
  for (let i = 0; i < 10_001; i++) hit(1, `new-${i}`);
  expect(hit(1, "new-0")).toBe(WINDOW_MS);
  for (let i = 0; i < 45_000; i++) hit(1, `newer-${i}`);
  expect(hit(1, "newer-44999")).toBe(WINDOW_MS);
  expect(hit(1, "new-0")).toBe(0);
});
