import { expect, test } from "bun:test";
import type { RedisClient } from "bun";
import { RedisCounter } from "../../src/bus/redis/counter.ts";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";

/** A process whose timers come as late as the test says, and a server that never answers. */
function opened() {
  let nowMs = 0;
  let due: (() => void) | null = null;
  const clock: Clock = {
    ...systemClock,
    elapsed: () => nowMs,
    after: (_delayMs, run) => {
      due = run;
      return () => {
        due = null;
      };
    },
  };
  const client = { connected: true, send: () => new Promise(() => {}) } as unknown as RedisClient;
  const counter = new RedisCounter({
    prefix: "test:",
    server: { client, connected: false },
    clock,
    log: silentLog,
  });
  return {
    counter,
    /** The timer runs after so long. */
    fire(afterMs: number) {
      nowMs += afterMs;
      const run = due;
      due = null;
      run?.();
    },
  };
}

test("a call to Redis does not expire because this process could not run", async () => {
  const { counter, fire } = opened();
  let outcome = "waiting";
  const call = counter.ask("me", []).catch((error: Error) => {
    outcome = error.message;
  });
  // For ten seconds nothing ran here: whatever came from the server has not been read.
  fire(10_000);
  await Promise.resolve();
  expect([outcome, counter.available]).toEqual(["waiting", true]);
  fire(100);
  await call;
  expect(outcome).toBe("no answer from Redis within 3000 ms");
  expect(counter.available).toBe(false);
});
