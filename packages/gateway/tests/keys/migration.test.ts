/** What keys spent before they had limits comes through the migration. */
import { expect, test } from "bun:test";
import { onEachDatabase, withDatabaseAt } from "@model-gateway/testing/databases.ts";
import { migrate } from "../../src/storage/migrate.ts";

const BEFORE_LIMITS = 15;

onEachDatabase("the migration to limits of keys", (_, kind) => {
  test("sums up what each key has spent, in its newest month and in all", () =>
    withDatabaseAt(kind, BEFORE_LIMITS, async (db) => {
      const [busy, idle] = [crypto.randomUUID(), crypto.randomUUID()];
      const rows: [string | null, string, number | null][] = [
        [busy, "2026-10-31T23:59:59.999Z", 0.1],
        [busy, "2026-11-01T00:00:00.000Z", 0.2],
        [busy, "2026-11-30T12:00:00.000Z", 0.000000001],
        [busy, "2026-11-30T12:00:00.001Z", null],
        [idle, "2026-09-01T00:00:00.000Z", null],
        [null, "2026-11-01T00:00:00.000Z", 5],
      ];
      for (const [keyId, time, cost] of rows)
        await db.run(
          `INSERT INTO usage_records (id, user_id, key_id, project, api_key_id, model, backend, prompt_tokens,
             completion_tokens, total_tokens, cost, created_at, created_ms, estimated)
           VALUES ($1, $2, $3, 'p', 'a', 'm', 'gateway', 1, 1, 2, $4, $5, $6, FALSE)`,
          [crypto.randomUUID(), crypto.randomUUID(), keyId, cost, time, Date.parse(time)],
        );
      await migrate(db);
      const spends = await db.all<{ key_id: string }>("SELECT * FROM key_spend");
      const byKey = Object.fromEntries(spends.map(({ key_id, ...spend }) => [key_id, spend]));
      expect(byKey).toEqual({
        [busy]: {
          month: "2026-11",
          month_cost_nano_usd: 200_000_001,
          total_cost_nano_usd: 300_000_001,
          requests: 4,
          last_used_ms: Date.parse("2026-11-30T12:00:00.001Z"),
        },
        [idle]: {
          month: "2026-09",
          month_cost_nano_usd: 0,
          total_cost_nano_usd: 0,
          requests: 1,
          last_used_ms: Date.parse("2026-09-01T00:00:00.000Z"),
        },
      });
    }));
});
