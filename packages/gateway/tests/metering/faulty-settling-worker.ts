/**
 * The settling thread with a fault, which its argument says: it dies or goes silent in the middle of a
 * transaction, or after the commit and before the answer.
 */

import "../../src/app/journal-thread/worker.ts";
import { PostgresDatabase } from "../../src/storage/postgres/database.ts";
import { SqliteDatabase } from "../../src/storage/sqlite/database.ts";
import type { Fault } from "./faults.ts";

const fault = process.argv[2] as Fault;

/** Nothing runs in this thread any more. */
function stop(): never {
  if (fault === "hangs after the commit") for (;;);
  process.exit(1);
}

for (const { prototype } of [SqliteDatabase, PostgresDatabase]) {
  const { transaction } = prototype;
  prototype.transaction = async function (work) {
    const result = await transaction.call(this, async (tx) => {
      const inside = await work(tx);
      if (fault === "dies before the commit") stop();
      return inside;
    });
    if (fault !== "dies before the commit") stop();
    return result as never;
  };
}
