/** Those who watch are told of each write, on the event loop. */
import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { blocksOf, rowsIn } from "../../src/rooms/requests/blocks.ts";
import type { Filter } from "../../src/rooms/requests/filter.ts";
import { type Asker, type Facet, firstIdAt, Rows } from "../../src/rooms/requests/rows.ts";
import { Tail } from "../../src/rooms/requests/tail.ts";
import { BATCH_ROWS } from "../../src/rooms/requests/writer.ts";
import { NOW } from "./room.ts";

const KEYS = 20;
const facet = { surface: "/v1/chat/completions", model: "m", backend: "b", code: "" };
const facets = new Map<number, Facet>(
  [200, 502].map((status, id) => [id, { ...facet, id, status }] as const),
);
const askers = new Map<number, Asker>(
  Array.from({ length: KEYS }, (_, id) => {
    const asker = { id, userId: `u${id}`, keyId: `k${id}`, groupId: null, project: null, keyPrefix: null };
    return [id, asker] as const;
  }),
);
const anything: Filter = {
  scope: { userId: null, groupId: null, keyId: null },
  surface: null,
  model: null,
  backend: null,
  code: null,
  outcome: null,
};

/** A full batch: keys in turns, every seventh request failed. */
function batch() {
  const rows = new Rows(BATCH_ROWS);
  for (let i = 0; i < BATCH_ROWS; i++) {
    const id = `${firstIdAt(NOW).slice(0, 13)}-7000-8000-${String(i).padStart(12, "0")}`;
    const figures = { attempts: 1, queueMs: 1, firstTokenMs: null, durationMs: 1 };
    const usage = { promptTokens: 1, completionTokens: 1, costNanoUsd: 1 };
    const facetId = Number(i % 7 === 0);
    rows.add(
      { id, askerId: i % KEYS, facetId, ...figures, ...usage, reason: null, detail: null },
      facetId ? 502 : 200,
    );
  }
  return { blocks: blocksOf(rows), facets, askers };
}

function watched(filters: readonly Filter[]) {
  const told: { records: { id: string }[]; skipped: number }[] = [];
  let streams = 0;
  const events = {
    open: () => ({ sessionId: `s${streams++}` }),
    notify: (_: string, __: object, what: (typeof told)[number]) => told.push(what),
  };
  const clock = new ManualClock(NOW);
  const tail = new Tail({ bus: new InProcessBus(), events: events as never, clock, ids: randomIds });
  for (const [i, filter] of filters.entries()) tail.watch({ userId: `w${i}` } as never, filter, undefined);
  return { tail, told };
}

test("a watcher is shown the last of those it asked for, in their order, and told how many more there were", () => {
  const { scope } = anything;
  const wanted: [Filter, (i: number) => boolean][] = [
    [anything, () => true],
    [{ ...anything, outcome: "failed" }, (i) => i % 7 === 0],
    [{ ...anything, scope: { ...scope, keyId: "k3" } }, (i) => i % KEYS === 3],
    [
      { ...anything, scope: { ...scope, keyId: "k3" }, outcome: "failed" },
      (i) => i % KEYS === 3 && i % 7 === 0,
    ],
  ];
  const { tail, told } = watched(wanted.map(([filter]) => filter));
  const written = batch();
  tail.written(written);
  const rows = written.blocks.flatMap(rowsIn);
  expect(told).toHaveLength(wanted.length);
  for (const [at, [, isWanted]] of wanted.entries()) {
    const matching = rows.map(({ id }) => id).filter((id) => isWanted(Number(id.slice(-12))));
    expect(told[at]!.records.map(({ id }) => id)).toEqual(matching.slice(-20));
    expect(told[at]!.skipped).toBe(matching.length - 20);
  }
});

test("twenty watchers cost hardly more than one", () => {
  const written = batch();
  /** The shortest of many: other processes only make it longer. */
  const msFor = (watchers: number): number => {
    const { tail } = watched(Array.from({ length: watchers }, () => anything));
    const times = Array.from({ length: 40 }, () => {
      const startedMs = performance.now();
      tail.written(written);
      return performance.now() - startedMs;
    });
    return Math.min(...times);
  };
  msFor(1);
  expect(msFor(20)).toBeLessThan(5 * msFor(1));
});
