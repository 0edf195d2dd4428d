import type { Past } from "@model-gateway/demo";
import type { Config } from "../config.ts";
import { isoTime, systemClock } from "../kernel/clock.ts";
import { randomIds } from "../kernel/ids.ts";
import { Usage } from "../rooms/usage/index.ts";
import { insertRow } from "../storage/contract.ts";
import { openStorage } from "../storage/index.ts";

const BATCH_ROWS = 500;

/** Writes the demonstration's past usage. Its people have random passwords, so nobody can sign in as them. */
export async function writePast(config: Config, { requests, people }: Past): Promise<void> {
  const db = await openStorage(config);
  try {
    const { store } = new Usage({ db, clock: systemClock, settings: config });
    for (let start = 0; start < requests.length; start += BATCH_ROWS)
      await db.transaction((tx) => store.insert(tx, requests.slice(start, start + BATCH_ROWS)));
    const now = isoTime(systemClock.now());
    for (const { id, email, name } of people) {
      const password_hash = await Bun.password.hash(randomIds.uuid());
      await insertRow(db, "users", { id, email, name, password_hash, is_admin: false, created_at: now });
    }
  } finally {
    await db.close();
  }
}
