import { expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { UsageStore } from "../../src/rooms/usage/for-thread.ts";
import { CacheWatch } from "../../src/rooms/usage/lost-caches.ts";
import { openStorage } from "../../src/storage/index.ts";
import { requestRow } from "../support/request-lines.ts";

const HOUR_MS = 3_600_000;

onEachDatabase("caches", (fresh) => {
  test("are lost where most of the prompts was read from them, and now nothing is", async () => {
    const { options, drop } = await fresh();
    const db = await openStorage(options);
    const clock = new ManualClock();
    const rowsOf = (backend: string, hoursAgo: number, use: object) =>
      Array.from({ length: 10 }, () => ({
        ...requestRow(),
        requestId: crypto.randomUUID(),
        backend,
        atMs: clock.nowMs - hoursAgo * HOUR_MS,
        promptTokens: 5_000,
        cachedTokens: 4_000,
        ...use,
      }));
    const stories: Record<string, [before: object, recent: object]> = {
      lost: [{}, { cachedTokens: 0 }],
      "reads a little": [{}, { cachedTokens: 1 }],
      "never cached much": [{ cachedTokens: 2_500 }, { cachedTokens: 0 }],
      "has short prompts now": [{}, { cachedTokens: 0, promptTokens: 4_000 }],
    };
    try {
      const rows = Object.entries(stories).flatMap(([name, [before, recent]]) => [
        ...rowsOf(name, 20, before),
        ...rowsOf(name, 1, recent),
      ]);
      const quiet = rowsOf("quiet now", 20, {});
      await db.transaction((tx) => new UsageStore(db).insert(tx, [...rows, ...quiet]));
      const watch = new CacheWatch(db, clock);
      expect([...(await watch.lost())]).toEqual([["lost", 0.8]]);
      clock.advance(8 * 24 * HOUR_MS);
      expect([...(await watch.lost())]).toEqual([]);
    } finally {
      await db.close();
      await drop();
    }
  });
});
