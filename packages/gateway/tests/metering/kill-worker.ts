/**
 * A process to be killed: answers requests as fast as it can and prints the id of each one after it was
 * settled, as a server would send the last byte of its reply.
 */
import { writeSync } from "node:fs";
import { systemClock } from "../../src/kernel/clock.ts";
import type { Payer } from "../../src/kernel/payer.ts";
import { openStorage, type StorageOptions } from "../../src/storage/index.ts";
import { openBench, spend } from "./support.ts";

const BURST = 8;
const STDOUT = 1;

export interface WorkerOptions {
  storage: StorageOptions;
  payers: Payer[];
}

const { storage, payers } = JSON.parse(process.argv[2]!) as WorkerOptions;
const db = await openStorage(storage);
const bench = await openBench({ db, dataDir: storage.dataDir, clock: systemClock, threadOn: storage });
for (let n = 0; ; n++) {
  for (let i = 0; i < BURST; i++) {
    const who = payers[(n + i) % payers.length]!;
    const cents = 1 + (n % 3);
    // Now and then an upstream writes more than was held for.
    const id = await spend(bench, who, cents, n % 5 === 0 ? cents * 4 : cents).catch(() => null);
    if (id !== null) writeSync(STDOUT, `${id}\n`);
  }
  await Bun.sleep(1);
}
