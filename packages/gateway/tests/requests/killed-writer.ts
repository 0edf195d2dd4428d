/**
 * A process that is killed between writing records and adding them to the sums. Its arguments: where the database is, as
 * JSON; when the last request came; how many people ask.
 */
import { systemClock } from "../../src/kernel/clock.ts";
import { RequestRecord } from "../../src/kernel/request-record.ts";
import { firstIdAt } from "../../src/rooms/requests/rows.ts";
import { RequestStore } from "../../src/rooms/requests/store.ts";
import { BATCH_ROWS, RecordWriter } from "../../src/rooms/requests/writer.ts";
import { openStorage, type StorageOptions } from "../../src/storage/index.ts";
import { writerNeeds } from "./room.ts";

const STEP_MS = 5;
const LONG_MS = 2 * 3_600_000;

const [options, lastMs, askers] = process.argv.slice(2).map((text) => JSON.parse(text)) as [
  StorageOptions,
  number,
  number,
];
const writer = new RecordWriter({
  ...writerNeeds(),
  store: new RequestStore(await openStorage(options)),
  clock: systemClock,
  written: () => process.kill(process.pid, "SIGKILL"),
});
for (let i = 0; i < BATCH_ROWS; i++) {
  // The first took hours.
  const atMs = lastMs - (i === 0 ? LONG_MS : i * STEP_MS);
  const record = new RequestRecord(writer, "/v1/chat/completions", firstIdAt(atMs));
  record.also({ userId: firstIdAt(i % askers) });
  record.end(200);
}
