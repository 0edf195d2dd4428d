import type { Past } from "@model-gateway/demo";
import type { Config } from "../config.ts";
import { isoTime, systemClock } from "../kernel/clock.ts";
import { randomIds } from "../kernel/ids.ts";
import { blocksOf, RequestStore, Rows, Sums } from "../rooms/requests/index.ts";
import { Usage } from "../rooms/usage/index.ts";
import { openStorage } from "../storage/index.ts";
import { requestsOf } from "./demo-requests.ts";

const BATCH_ROWS = 500;
/** As the demonstration registers its model server. */
const BACKEND = "demo";

/** Writes what the demonstration shows as its past; nobody can sign in as these people. */
export async function writePast(config: Config, { usage, people }: Past): Promise<void> {
  const db = await openStorage(config);
  try {
    const { store } = new Usage({ db, clock: systemClock, retentionMonths: config.usageRetentionMonths });
    for (let start = 0; start < usage.length; start += BATCH_ROWS)
      await db.transaction((tx) => store.insert(tx, usage.slice(start, start + BATCH_ROWS)));
    const { rows, facets, askers } = requestsOf(usage, BACKEND);
    const requests = new RequestStore(db);
    for (let start = 0; start < rows.length; start += BATCH_ROWS) {
      const batch = new Rows(BATCH_ROWS);
      for (const { status, ...row } of rows.slice(start, start + BATCH_ROWS)) batch.add(row, status);
      await requests.insert({ blocks: blocksOf(batch), facets, askers });
      const sums = new Sums();
      sums.add(batch);
      await requests.addSums(sums);
    }
    const now = isoTime(systemClock.now());
    for (const { email, name } of people) {
      const unknowable = await Bun.password.hash(randomIds.uuid());
      await db.run(
        "INSERT INTO users (id, email, name, password_hash, is_admin, created_at) VALUES ($1, $2, $3, $4, FALSE, $5)",
        [randomIds.uuid(), email, name, unknowable, now],
      );
    }
  } finally {
    await db.close();
  }
}
