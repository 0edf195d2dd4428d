/** A process to be killed: its files cannot grow beyond a limit. Prints the id of each request that was answered. */
import { writeSync } from "node:fs";
import { systemClock } from "../../src/kernel/clock.ts";
import { openStorage, type StorageOptions } from "../../src/storage/index.ts";
import { openBench, payer, spend } from "./support.ts";

const STDOUT = 1;
/** As the service does: the limit is an error of the write, not the end of the process. */
process.on("SIGXFSZ", () => {});
const storage = JSON.parse(process.argv[2]!) as StorageOptions;
const rows = Number(process.argv[3]);
const db = await openStorage(storage);
const bench = await openBench({ db, dataDir: storage.dataDir, clock: systemClock, threadOn: storage });
const who = payer({ tier: "enterprise" });
for (let n = 0; n < rows; n++) {
  writeSync(STDOUT, `${await spend(bench, who)}\n`);
  if (n % 500 === 0) await bench.metering.flush(500);
}
await bench.metering.flush(1_000);
process.kill(process.pid, "SIGKILL");
