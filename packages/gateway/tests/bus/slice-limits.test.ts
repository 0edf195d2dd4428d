/** Slices of rate limits: how long they last, what they cost others, and how few messages they take. */
import { beforeEach, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { InProcessRateLimiter } from "../../src/bus/in-process/rate-limiter.ts";
import { LimitGroup } from "../../src/bus/slices/limit-group.ts";
import { MemoryLimits } from "../../src/bus/slices/memory-limits.ts";
import { silentLog } from "../../src/kernel/log.ts";

const WINDOW_MS = 60_000;
let clock: ManualClock;
let limits: MemoryLimits;
beforeEach(() => {
  clock = new ManualClock();
  limits = new MemoryLimits(clock);
});

const order = { key: "k", limit: 1_000, windowMs: WINDOW_MS, hits: 0, ahead: 0, ended: null, isFinal: true };
const hit = (more: Partial<typeof order>) => limits.hit([{ ...order, ...more }])[0]!;

test("a slice that is a small part of what is left lasts longer", () => {
  expect(hit({ ahead: 8 })).toMatchObject({ ahead: 8, sliceMs: 10_000 });
  expect(hit({ ahead: 40 })).toMatchObject({ ahead: 40, sliceMs: 1_000 });
  expect(hit({ key: "other", windowMs: 12_000, ahead: 8 })).toMatchObject({ ahead: 8, sliceMs: 2_000 });
});

test("a slice whose end nobody tells counts as of its end, and only its own hits do", () => {
  hit({ ahead: 8 });
  clock.advance(1_000);
  expect(hit({ hits: 1_000 })).toMatchObject({ counted: 992, waitMs: WINDOW_MS });
  clock.advance(WINDOW_MS);
  expect(hit({ hits: 1_000 })).toMatchObject({ counted: 992, waitMs: 9_000 });
  clock.advance(9_000);
  expect(hit({ hits: 10 })).toMatchObject({ counted: 8 });
});

test("what was used of a slice counts as of when that was told, the rest not at all", () => {
  const { slice } = hit({ ahead: 8 });
  clock.advance(2_000);
  expect(limits.hit([{ ...order, hits: 1_000, ended: { slice, unused: 5 } }])[0]!.counted).toBe(997);
  clock.advance(WINDOW_MS);
  expect(hit({ hits: 1_001 }).counted).toBe(1_000);
});

/** One that asks the limits above, and how many orders it has sent. */
function groupOf() {
  const seen = { orders: 0 };
  const server = {
    available: true,
    hit: async (each: Parameters<MemoryLimits["hit"]>[0]) => {
      seen.orders += each.length;
      return limits.hit(each);
    },
  };
  const fallback = new InProcessRateLimiter(clock);
  const group = new LimitGroup({ server, fallback, bus: new InProcessBus(), clock, log: silentLog });
  return { group, seen };
}

test("a key with ten hits a second asks a few times a minute", async () => {
  const { group, seen } = groupOf();
  for (let i = 0; i < 600; i++) {
    expect(await group.hit("k", 1_000_000, WINDOW_MS)).toBe(0);
    clock.advance(100);
  }
  expect(seen.orders).toBeLessThan(15);
  clock.advance(1_500);
  await group.close();
  expect(limits.hit([{ ...order, limit: 1_000_000, hits: 1_000_000 }])[0]!.counted).toBeGreaterThan(999_390);
});

test("what an instance that stops has of any key goes back", async () => {
  const { group } = groupOf();
  const keys = Array.from({ length: 1_000 }, (_, i) => `k${i}`);
  for (let n = 0; n < 2; n++) for (const key of keys) await group.hit(key, 1_000, WINDOW_MS);
  expect(hit({ key: "k999", hits: 1_000 }).counted).toBeLessThan(998);
  await group.close();
  const counted = keys.slice(0, 999).map((key) => hit({ key, hits: 1_000 }).counted);
  expect(new Set(counted)).toEqual(new Set([998]));
});
