import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";
import type { JournalOptions } from "../../src/rooms/metering/journal/journal.ts";
import { readLines } from "../../src/rooms/metering/journal/segment.ts";
import { BATCH_ROWS_MAX, JournalWriter } from "../../src/rooms/metering/journal/writer.ts";
import { entry, open, removeDirsAfterEach, temporaryDir } from "./journal-support.ts";

removeDirsAfterEach();

const LONGER_THAN_THE_DELAY_MS = 1_000;

/** A writer whose database notes the sizes of batches, and runs `whileWriting` in the middle of each. */
function openWriter(
  whileWriting: () => void | Promise<void> = () => {},
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
        return { rows: entries.length, damaged, length, news: [] };
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
  const { clock, sizes, settle, turns, close } = openWriter(whileWriting, {
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

test("rows that come while others are written wait until they are enough, or for the delay", async () => {
  let more = 3;
  const bench = openWriter(() => {
    if (more-- > 0) bench.settle(10);
  });
  const { clock, sizes, settle, turns, close } = bench;
  settle(BATCH_ROWS_MAX);
  clock.advance(LONGER_THAN_THE_DELAY_MS);
  await turns();
  expect(sizes).toEqual([BATCH_ROWS_MAX]);
  clock.advance(LONGER_THAN_THE_DELAY_MS);
  await turns();
  expect(sizes).toEqual([BATCH_ROWS_MAX, 10]);
  settle(BATCH_ROWS_MAX);
  clock.advance(LONGER_THAN_THE_DELAY_MS);
  await turns();
  expect(sizes).toEqual([BATCH_ROWS_MAX, 10, BATCH_ROWS_MAX]);
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
