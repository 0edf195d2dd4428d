import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";
import type { JournalOptions } from "../../src/rooms/metering/journal/journal.ts";
import { BATCH_ROWS_MAX } from "../../src/rooms/metering/journal/pace.ts";
import { readLines } from "../../src/rooms/metering/journal/segment.ts";
import { JournalWriter } from "../../src/rooms/metering/journal/writer.ts";
import { entry, open, removeDirsAfterEach, temporaryDir } from "./journal-support.ts";

removeDirsAfterEach();

const LONGER_THAN_THE_DELAY_MS = 1_000;

/** A writer whose database notes the sizes of batches, and runs `whileWriting` in the middle of each. */
function openWriter(
  whileWriting: () => void | Promise<void> = () => {},
  settlements: () => number | null = () => null,
  options: Partial<JournalOptions> = {},
) {
  const clock = new ManualClock();
  const journal = open(temporaryDir(), { clock, ...options });
  const sizes: number[] = [];
  const writer = new JournalWriter({
    journal,
    clock,
    log: silentLog,
    settler: {
      async settle(order) {
        const { entries, damaged, length } = readLines(order);
        sizes.push(entries.length);
        await null;
        await whileWriting();
        return { rows: entries.length, damaged, length, settlements: settlements(), news: [] };
      },
    },
    settled: () => {},
    givenUp: () => {},
  });
  return {
    clock,
    journal,
    sizes,
    writer,
    /** As the service does at the end of a request. */
    settle(rows: number) {
      for (let n = 0; n < rows; n++) {
        journal.append(entry());
        writer.wake();
      }
    },
    /** Lets everything run that is due. */
    async turns() {
      for (let n = 0; n < 20; n++) await new Promise((resolve) => setImmediate(resolve));
    },
    async close() {
      await writer.close(0);
      journal.close();
    },
  };
}

test("rows that come one after the other share a transaction", async () => {
  const { clock, sizes, settle, turns, close } = openWriter();
  for (let n = 0; n < 10; n++) {
    settle(1);
    clock.advance(1);
    await turns();
  }
  expect(sizes).toEqual([]);
  clock.advance(LONGER_THAN_THE_DELAY_MS);
  await turns();
  expect(sizes).toEqual([10]);
  await close();
});

test("a row is settled even if a transaction ends between its request and the end of that turn", async () => {
  const due: (() => void)[] = [];
  const whileWriting = () => {
    if (sizes.length === 1) settle(1);
  };
  const { clock, sizes, settle, turns, close } = openWriter(whileWriting, undefined, {
    beforeAnswers: (run) => due.push(run),
  });
  const endTurn = () => {
    for (const run of due.splice(0)) run();
  };
  settle(1);
  endTurn();
  clock.advance(LONGER_THAN_THE_DELAY_MS);
  await turns();
  expect(sizes).toEqual([1]);
  endTurn();
  clock.advance(LONGER_THAN_THE_DELAY_MS);
  await turns();
  expect(sizes).toEqual([1, 1]);
  await close();
});

test("as many rows as a transaction takes do not wait", async () => {
  const { clock, sizes, settle, turns, close } = openWriter();
  settle(BATCH_ROWS_MAX - 1);
  clock.advance(0);
  await turns();
  expect(sizes).toEqual([]);
  settle(1);
  // Never within the request that made it enough.
  expect(sizes).toEqual([]);
  clock.advance(0);
  await turns();
  expect(sizes).toEqual([BATCH_ROWS_MAX]);
  await close();
});

test("rows that come while others are written wait until they are enough, or for the delay", async () => {
  let more = 3;
  const bench = openWriter(() => {
    if (more-- > 0) bench.settle(10);
  });
  const { clock, sizes, settle, turns, close } = bench;
  settle(BATCH_ROWS_MAX);
  clock.advance(0);
  await turns();
  expect(sizes).toEqual([BATCH_ROWS_MAX]);
  clock.advance(LONGER_THAN_THE_DELAY_MS);
  await turns();
  expect(sizes).toEqual([BATCH_ROWS_MAX, 10]);
  settle(2 * BATCH_ROWS_MAX);
  clock.advance(0);
  await turns();
  expect(sizes).toEqual([BATCH_ROWS_MAX, 10, BATCH_ROWS_MAX, BATCH_ROWS_MAX]);
  await close();
});

test("whoever waits for rows gets them at once, also those that came meanwhile", async () => {
  const bench = openWriter(async () => {
    if (bench.sizes.length > 1) return;
    bench.settle(5);
    waiting.push(bench.writer.flush(LONGER_THAN_THE_DELAY_MS));
  });
  const waiting: Promise<boolean>[] = [];
  bench.settle(3);
  waiting.push(bench.writer.flush(LONGER_THAN_THE_DELAY_MS));
  await bench.turns();
  expect(await Promise.all(waiting)).toEqual([true, true]);
  expect(bench.sizes).toEqual([3, 5]);
  await bench.close();
});

/** Others settle a thousand times between two settlements of this writer. */
function amongOthers(): () => number {
  let settlements = 0;
  return () => {
    settlements += 1_000;
    return settlements;
  };
}

test("among many that settle, rows are gathered for longer, up to a limit, and a stop settles them at once", async () => {
  const { clock, sizes, settle, turns, writer, journal } = openWriter(() => {}, amongOthers());
  /** Seconds of one row each until the next settlement. */
  const secondsToNext = async () => {
    const before = sizes.length;
    let seconds = 0;
    for (; sizes.length === before; seconds++) {
      settle(1);
      clock.advance(1_000);
      await turns();
    }
    return seconds;
  };
  const waits: number[] = [];
  for (let n = 0; n < 12; n++) waits.push(await secondsToNext());
  expect(waits[0]).toBe(1);
  expect(Math.max(...waits)).toBeLessThanOrEqual(31);
  expect(waits.at(-1)).toBeGreaterThanOrEqual(22);
  expect(writer.gatheringSeconds).toBe(30);
  // Waiting for others is not a failure.
  settle(3);
  clock.advance(20_000);
  expect(writer.stalledSeconds).toBe(0);
  // Who reads does not make it settle sooner, and does not wait in vain.
  const before = sizes.length;
  expect(await writer.flush(1_000, { reader: true })).toBe(false);
  await turns();
  expect(sizes.length).toBe(before);
  let isClosed = false;
  const closing = writer.close(10_000).then(() => {
    isClosed = true;
  });
  while (!isClosed) {
    clock.advance(100);
    await turns();
  }
  await closing;
  expect(sizes.length).toBe(before + 1);
  expect(journal.ownRows).toBe(0);
  journal.close();
});

test("as many rows as a shared transaction takes do not wait for the turn", async () => {
  const { clock, sizes, settle, turns, close } = openWriter(() => {}, amongOthers());
  for (let n = 0; n < 4; n++) {
    settle(1);
    clock.advance(30_000);
    await turns();
  }
  const before = sizes.length;
  settle(4 * BATCH_ROWS_MAX);
  clock.advance(0);
  await turns();
  const taken = sizes.slice(before);
  expect(taken.reduce((sum, size) => sum + size, 0)).toBe(4 * BATCH_ROWS_MAX);
  // One file of the journal holds most of them.
  expect(taken.length).toBeLessThanOrEqual(2);
  const closing = close();
  clock.advance(5_000);
  await closing;
});
