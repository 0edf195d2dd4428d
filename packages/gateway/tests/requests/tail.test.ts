/** Those who watch are told of requests that have ended, on the event loop. */
import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import type { Filter } from "../../src/rooms/requests/filter.ts";
import { NOTIFY_AT_ONCE_MAX, Tail } from "../../src/rooms/requests/service.ts";
import { requestRow } from "../support/request-lines.ts";
import { NOW } from "./room.ts";
import { idAt } from "./support.ts";

const KEYS = 20;
/** Keys in turns, every seventh request failed. */
const lines = Array.from({ length: NOTIFY_AT_ONCE_MAX }, (_, i) =>
  requestRow({
    requestId: idAt(NOW, i),
    userId: `u${i % KEYS}`,
    keyId: `k${i % KEYS}`,
    status: i % 7 === 0 ? 502 : 200,
  }),
);

test("a watcher is shown the last of those it asked for, in their order, and told how many more there were", () => {
  const wanted: [Filter, (i: number) => boolean][] = [
    [{}, () => true],
    [{ outcome: "failed" }, (i) => i % 7 === 0],
    [{ key_id: "k3" }, (i) => i % KEYS === 3],
    [{ key_id: "k3", outcome: "failed" }, (i) => i % KEYS === 3 && i % 7 === 0],
  ];
  const told: { records: { id: string }[]; skipped: number }[] = [];
  let streams = 0;
  const events = {
    open: () => ({ sessionId: `s${streams++}` }),
    notify: (_: string, __: object, what: (typeof told)[number]) => told.push(what),
  };
  const clock = new ManualClock(NOW);
  const tail = new Tail({ bus: new InProcessBus(), events: events as never, clock, ids: randomIds });
  for (const [i, [filter]] of wanted.entries()) tail.watch({ userId: `w${i}` } as never, filter, undefined);
  for (const line of lines) tail.ended(line);
  expect(told).toHaveLength(wanted.length);
  for (const [at, [, isWanted]] of wanted.entries()) {
    const matching = lines.filter((_, i) => isWanted(i)).map(({ requestId }) => requestId);
    expect(told[at]!.records.map(({ id }) => id)).toEqual(matching.slice(-20));
    expect(told[at]!.skipped).toBe(Math.max(0, matching.length - 20));
  }
  // Fewer are told after a moment.
  tail.ended(lines[0]!);
  expect(told).toHaveLength(wanted.length);
  clock.advance(1_000);
  expect(told).toHaveLength(wanted.length + 2);
  tail.close();
});
