import { expect, test } from "bun:test";
import { systemClock } from "../../src/clock.ts";

test("what is done again and again is done at whole periods, whenever it began, until it is ended", async () => {
  const PERIOD_MS = 40;
  const TIMES = 5;
  const begun = performance.now();
  const offsets: number[] = [];
  let ends: (() => void)[] = [];
  await new Promise<void>((resolve) => {
    const counts = [0, 0];
    const count = (which: 0 | 1) => () => {
      offsets.push(performance.now() % PERIOD_MS);
      counts[which]!++;
      if (counts.every((each) => each >= TIMES)) resolve();
    };
    ends = [systemClock.every(PERIOD_MS, count(0))];
    setTimeout(() => ends.push(systemClock.every(PERIOD_MS, count(1))), PERIOD_MS / 3);
  });
  const tookMs = performance.now() - begun;
  for (const end of ends) end();
  const told = offsets.length;
  // Never early, and never twice in a period.
  expect(Math.min(...offsets)).toBeLessThan(PERIOD_MS / 2);
  expect(told).toBeLessThanOrEqual(2 * (Math.ceil(tookMs / PERIOD_MS) + 1));
  await new Promise<void>((resolve) => systemClock.after(2 * PERIOD_MS, resolve));
  expect(offsets.length).toBe(told);
});
