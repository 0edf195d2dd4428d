import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { BusRequests } from "../../src/bus/requests.ts";
import { randomIds } from "../../src/kernel/ids.ts";

/** Lets everything run that does not wait for the clock. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

test("what was told is done once every receiver is, or when its time is over", async () => {
  const clock = new ManualClock();
  const bus = new InProcessBus();
  const requests = new BusRequests({ bus, clock, ids: randomIds });
  const { promise: reading, resolve: read } = Promise.withResolvers<void>();
  bus.subscribe("changed", () => reading);
  bus.publish("changed", "");
  let isDone = false;
  const done = requests.allDone(300).then(() => {
    isDone = true;
  });
  await turn();
  expect(isDone).toBe(false);
  read();
  await done;

  // One that is frozen is counted, and does not answer.
  bus.listenerCount = async () => 2;
  isDone = false;
  const late = requests.allDone(300).then(() => {
    isDone = true;
  });
  await turn();
  clock.advance(299);
  await turn();
  expect(isDone).toBe(false);
  clock.advance(1);
  await late;
});
