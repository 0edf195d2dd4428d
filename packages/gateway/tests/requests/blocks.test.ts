/** Ended requests become blocks on the event loop, in whichever order they end. */
import { expect, test } from "bun:test";
import { BLOCK_ROWS_MAX, BUCKET_MS, blocksOf, rowsIn } from "../../src/rooms/requests/blocks.ts";
import { firstIdAt, Rows } from "../../src/rooms/requests/rows.ts";
import { BATCH_ROWS } from "../../src/rooms/requests/writer.ts";
import { NOW } from "./room.ts";

/** A full batch whose rows came in these buckets, in turns. */
function batchOf(buckets: number): Rows {
  const rows = new Rows(BATCH_ROWS);
  for (let i = 0; i < BATCH_ROWS; i++) {
    const id = `${firstIdAt(NOW + (i % buckets) * BUCKET_MS).slice(0, 13)}-7000-8000-${String(i).padStart(12, "0")}`;
    const times = { queueMs: 1, firstTokenMs: null, durationMs: i };
    const tokens = { promptTokens: i, completionTokens: 1, costNanoUsd: i };
    rows.add(
      { id, askerId: 1, facetId: 2, attempts: 1, ...times, ...tokens, reason: null, detail: null },
      200,
    );
  }
  return rows;
}

/** The shortest of many: other processes only make it longer. */
function msOf(work: () => void): number {
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 40; i++) {
    const startedMs = performance.now();
    work();
    least = Math.min(least, performance.now() - startedMs);
  }
  return least;
}

test("requests that end in another order than they came are each in one block of their bucket", () => {
  for (const buckets of [1, 2, 7, 16, 1_000]) {
    const blocks = blocksOf(batchOf(buckets));
    const bucketOf = (id: string) => id.slice(0, 11);
    const durations = blocks.flatMap((block) => {
      const rows = rowsIn(block);
      expect(rows.length).toBe(block.requests);
      expect(rows.length).toBeLessThanOrEqual(BLOCK_ROWS_MAX);
      expect(rows.every(({ id }) => bucketOf(id) === bucketOf(block.firstId))).toBe(true);
      expect(rows.every((row) => row.durationMs === row.promptTokens)).toBe(true);
      return rows.map(({ durationMs }) => durationMs);
    });
    expect(durations.sort((a, b) => a - b)).toEqual(Array.from({ length: BATCH_ROWS }, (_, i) => i));
  }
});

test("that order makes blocks hardly slower", () => {
  const [inOrder, inTurns] = [batchOf(1), batchOf(2)];
  const leastMs = msOf(() => blocksOf(inOrder));
  expect(msOf(() => blocksOf(inTurns))).toBeLessThan(8 * leastMs);
});
