import { expect, test } from "bun:test";
import { GATHER_MS, Pace } from "../../src/rooms/metering/journal/pace.ts";

/** Settles for so many seconds, with `others` making as many settlements a second; returns what they come to. */
function settle(pace: Pace, from: { atMs: number; count: number }, seconds: number, others: number): void {
  const untilMs = from.atMs + seconds * 1000;
  while (from.atMs < untilMs) {
    from.atMs += pace.gatherMs;
    from.count += 1 + (others * pace.gatherMs) / 1000;
    pace.note(Math.round(from.count), from.atMs);
  }
}

test("alone, or with another one, rows are gathered for as short as ever", () => {
  const pace = new Pace();
  const place = { atMs: 0, count: 0 };
  settle(pace, place, 60, 0);
  settle(pace, place, 60, 2);
  expect(pace.gatherMs).toBe(GATHER_MS.least);
  expect(pace.isShared).toBe(false);
});

test("the more others settle the longer, up to a limit; and short again once they are gone", () => {
  const pace = new Pace();
  const place = { atMs: 0, count: 0 };
  settle(pace, place, 300, 200);
  expect(pace.gatherMs).toBe(GATHER_MS.most);
  settle(pace, place, 300, 1);
  expect(pace.gatherMs).toBeLessThan(700);
});

test("what one instance settles in quick succession, for readers or from a backlog, does not slow it down", () => {
  const pace = new Pace();
  for (let n = 1; n <= 1_000; n++) pace.note(n, n * 20);
  expect(pace.gatherMs).toBe(GATHER_MS.least);
});

test("batches of a backlog, a clock that was set back and a count that was restored change nothing", () => {
  const pace = new Pace();
  for (let n = 0; n < 100; n++) pace.note(n * 1000, n);
  pace.note(50, -3_600_000);
  pace.note(10, -3_599_000);
  expect(pace.gatherMs).toBe(GATHER_MS.least);
});

test("instances that take turns come to a few settlements a second, however many there are", () => {
  for (const instances of [3, 10, 100]) {
    const paces = Array.from({ length: instances }, () => new Pace());
    const dueMs = paces.map((_, i) => (i * GATHER_MS.least) / instances);
    let count = 0;
    let counted = 0;
    for (let atMs = 0; atMs < 300_000; atMs += 10)
      for (const [i, pace] of paces.entries()) {
        if (dueMs[i]! > atMs) continue;
        pace.note(++count, atMs);
        dueMs[i] = atMs + pace.gatherMs;
        if (atMs >= 200_000) counted++;
      }
    expect(counted / 100).toBeGreaterThan(2);
    expect(counted / 100).toBeLessThan(6);
  }
});
