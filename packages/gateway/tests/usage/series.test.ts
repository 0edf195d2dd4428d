/** Series of more groups than are read at once. */
import { expect, test } from "bun:test";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { readSeries } from "../../src/rooms/usage/series.ts";
import { writeRows } from "../requests/support.ts";
import { requestRow } from "../support/request-lines.ts";

const DAY_MS = 86_400_000;
const FROM_MS = Date.UTC(2026, 9, 1);
/** Sums by day that are read at once. */
const AT_ONCE = 50_000;
const KEYS = AT_ONCE / 2 + 100;
const EVERYONE = { userId: null, project: null, model: null, backend: null, apiKeyId: null, groupId: null };

onEachDatabase("series", (fresh) => {
  test("nothing is left out of the totals, however many keys there are", () =>
    withDatabase(fresh, async (db) => {
      const userId = crypto.randomUUID();
      // Each key was used on both days; the first few cost more.
      const rows = Array.from({ length: 2 * KEYS }, (_, i) => {
        const key = i % KEYS;
        const atMs = FROM_MS + (i < KEYS ? 1 : DAY_MS + 1);
        const attribution = key.toString(16).padStart(8, "0");
        return requestRow({ atMs, userId, attribution, costNanoUsd: key < 60 ? 100_000 - key : 1_000 });
      });
      await writeRows(db, rows);
      const cost = rows.reduce((sum, { costNanoUsd }) => sum + costNanoUsd!, 0) / 1e9;
      const filter = { ...EVERYONE, refId: null, fromMs: FROM_MS, belowMs: FROM_MS + 2 * DAY_MS };
      // From the sums by day, and from the rows.
      for (const belowMs of [filter.belowMs, filter.belowMs - 1]) {
        const { totals, groups, others } = await readSeries(db, { ...filter, belowMs }, "key");
        expect(totals.requests).toBe(rows.length);
        expect(totals.cost_usd).toBeCloseTo(cost, 9);
        expect(groups.map(({ name }) => name)).toEqual(
          Array.from({ length: 50 }, (_, i) => i.toString(16).padStart(8, "0")),
        );
        expect(groups.every(({ requests, days }) => requests === 2 && days.length === 2)).toBe(true);
        expect(others).toMatchObject({
          groups: KEYS - 50,
          requests: rows.length - 100,
          days: [{ requests: KEYS - 50 }, { requests: KEYS - 50 }],
        });
      }
      const byUser = await readSeries(db, filter, "user");
      expect(byUser).toMatchObject({ totals: { requests: rows.length }, others: null });
      expect(byUser.groups).toMatchObject([{ id: userId, requests: rows.length }]);
    }));
});
