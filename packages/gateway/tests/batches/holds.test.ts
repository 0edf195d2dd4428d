import { expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { BatchRunner } from "../../src/rooms/batches/runner.ts";
import type { BatchesOptions } from "../../src/rooms/batches/service.ts";
import type { BatchStore } from "../../src/rooms/batches/store.ts";

const NOTHING_KEPT = { keptBytes: async () => 0, outputBytes: async () => 0 };

test("what a batch holds goes with it into the next month, whose quota pays for it", async () => {
  let [nowMs, elapsedMs] = [Date.UTC(2026, 10, 30, 12), 0];
  const heldIn: string[] = [];
  const admissionIn = () => {
    heldIn.push(new Date(nowMs).toISOString().slice(0, 7));
    return { release: () => heldIn.shift() } as never;
  };
  const batch = {
    ...{ id: "b", payer: "{}", status: "in_progress", total: 1, completed: 0, failed: 0, due_at: "2999" },
    ...{ bound_nano_usd: 5, bound_tokens: 5 },
  };
  const store = {
    active: async () => [batch],
    unsettled: async () => [],
    pending: async () => [],
    ...NOTHING_KEPT,
  };
  const clock = { ...systemClock, now: () => nowMs, elapsed: () => elapsedMs };
  const options = {
    ...{ clock, log: silentLog, bus: { shared: false }, keys: { principalOf: async () => ({}) } },
    metering: { resume: async () => admissionIn(), flush: async () => true },
  };
  const runner = new BatchRunner(store as unknown as BatchStore, options as unknown as BatchesOptions);
  await runner.start();
  expect(heldIn).toEqual(["2026-11"]);
  nowMs += 12 * 3_600_000;
  elapsedMs += 12 * 3_600_000;
  runner.wake();
  await until("it is held in December", () => heldIn.join() === "2026-12");
  await runner.stop();
});

test("a batch that is found while it is being created is held for once, and not at all when it has ended", async () => {
  const held = new Set<object>();
  const hold = () => {
    const admission = { release: () => held.delete(admission) } as never;
    held.add(admission);
    return admission;
  };
  const batch = {
    id: "b",
    payer: "{}",
    status: "in_progress",
    total: 1,
    completed: 0,
    failed: 0,
    due_at: "2999",
  };
  let active = [{ ...batch, bound_nano_usd: 5, bound_tokens: 5 }];
  const store = {
    active: async () => active,
    unsettled: async () => [],
    pending: async () => [],
    ...NOTHING_KEPT,
  };
  const options = {
    ...{ clock: systemClock, log: silentLog, bus: { shared: false } },
    keys: { principalOf: async () => ({}) },
    metering: { resume: async () => hold(), flush: async () => true },
  };
  const runner = new BatchRunner(store as unknown as BatchStore, options as unknown as BatchesOptions);
  await runner.start();
  expect(held.size).toBe(1);
  runner.begin("b", hold(), { nanoUsd: 5, tokens: 5 });
  expect(held.size).toBe(1);
  active = [];
  runner.wake();
  await until("nothing is held", () => held.size === 0);
  await runner.stop();
});
