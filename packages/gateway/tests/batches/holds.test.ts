import { expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { BatchRunner } from "../../src/rooms/batches/runner.ts";
import type { BatchesOptions } from "../../src/rooms/batches/service.ts";
import type { BatchStore } from "../../src/rooms/batches/store.ts";

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
  const store = { active: async () => active, unsettled: async () => [], pending: async () => [] };
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
