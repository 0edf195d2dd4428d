/** Books and rollups of the version before debts come through the migration whole. */
import { expect, test } from "bun:test";
import { onEachDatabase, withDatabaseAt } from "@model-gateway/testing/databases.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { migrate } from "../../src/storage/migrate.ts";
import { NANO_PER_POINT, onLedger, pool } from "./support.ts";

const BEFORE_DEBTS = 9;

onEachDatabase("the migration to debts", (_, kind) => {
  test("keeps every account, movement and entry, and sums up what keys used", () =>
    withDatabaseAt(kind, BEFORE_DEBTS, async (db) => {
      const account = pool();
      const user = crypto.randomUUID();
      const now = new Date().toISOString();
      await db.run(
        "INSERT INTO ledger_accounts (id, type, balance, remainder, ever_credited, version) VALUES ($1, 'group', 70, 0, TRUE, 2)",
        [`group:${account.id}`],
      );
      await db.run("UPDATE ledger_accounts SET balance = -100, version = 1 WHERE id = 'system:issued'");
      await db.run("UPDATE ledger_accounts SET balance = 30, version = 1 WHERE id = 'system:spent'");
      const movement = `INSERT INTO ledger_movements (id, kind, from_account_id, to_account_id, points, exact_points,
          exact_femto, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`;
      const id = `group:${account.id}`;
      await db.run(movement, ["m1", "topup", "system:issued", id, 100, null, null, now]);
      await db.run(movement, ["request:r1", "settlement", id, "system:spent", 30, 30, 0, now]);
      for (const [who, seq, what, points, after] of [
        ["system:issued", 1, "m1", -100, -100],
        [id, 1, "m1", 100, 100],
        [id, 2, "request:r1", -30, 70],
        ["system:spent", 1, "request:r1", 30, 30],
      ])
        await db.run("INSERT INTO ledger_entries VALUES ($1, $2, $3, $4, $5)", [
          who!,
          seq!,
          what!,
          points!,
          after!,
        ]);
      // The whole user's row, two projects, and what the person did without a key.
      for (const [project, tokens] of [
        ["", 60],
        ["a", 10],
        ["b", 20],
      ] as const)
        await db.run("INSERT INTO usage_months VALUES ($1, '2026-10', $2, 1, $3, $3, $3, $3)", [
          user,
          project,
          tokens,
        ]);

      await migrate(db);
      expect(await verifyLedger(db)).toMatchObject({ problems: [], movements: 2, entries: 4 });
      const months = await db.all(
        `SELECT project, quota_tokens, key_quota_tokens, key_quota_cost_nano_usd FROM usage_months ORDER BY project`,
      );
      expect(months).toEqual([
        { project: "", quota_tokens: 60, key_quota_tokens: 30, key_quota_cost_nano_usd: 30 },
        { project: "a", quota_tokens: 10, key_quota_tokens: 10, key_quota_cost_nano_usd: 10 },
        { project: "b", quota_tokens: 20, key_quota_tokens: 20, key_quota_cost_nano_usd: 20 },
      ]);
      // The books go on, and their references still hold.
      const { topup, settle, balance } = onLedger(db);
      await topup(account, 5);
      await settle({ account, costNanoUsd: 3n * NANO_PER_POINT });
      expect(await balance(account)).toBe(72);
      await expect(db.run("DELETE FROM ledger_accounts WHERE type = 'group'")).rejects.toThrow();
      await expect(db.run("DELETE FROM ledger_movements")).rejects.toThrow();
      expect((await verifyLedger(db)).problems).toEqual([]);
    }));
});
