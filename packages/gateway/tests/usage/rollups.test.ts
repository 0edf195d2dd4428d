import { expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import type { UsageRow } from "../../src/rooms/usage/index.ts";
import { UsageStore } from "../../src/rooms/usage/settling.ts";
import type { Database } from "../../src/storage/contract.ts";
import { openStorage } from "../../src/storage/index.ts";

const USERS = [crypto.randomUUID(), crypto.randomUUID()];
const KEYS = [crypto.randomUUID(), crypto.randomUUID()];
/** Two days of one month, and the next month. */
const TIMES = ["2026-10-30T23:59:59.999Z", "2026-10-31T00:00:00.000Z", "2026-11-01T00:00:00.000Z"];
const CHOICES = {
  userId: USERS,
  keyId: [...KEYS, null],
  project: ["web", "default", null],
  apiKeyId: ["0a1b2c3d", "jwt-someone"],
  model: ["small", "large"],
  backend: ["gateway", "rpc"],
  promptTokens: [0, 3],
  completionTokens: [0, 50],
  costNanoUsd: [null, 0, 7_000],
  refId: [null, "job 1", "job 2"],
  points: [null, 0, 12],
  createdAtMs: TIMES.map((time) => Date.parse(time)),
};

/** Every value of every field, in combinations that a step prime to all their numbers goes through. */
function rowsOf(count: number): UsageRow[] {
  return Array.from({ length: count }, (_, i) => {
    let rest = i * 7_919;
    const chosen = Object.entries(CHOICES).map(([field, values]) => {
      const value = values[rest % values.length]!;
      rest = Math.floor(rest / values.length);
      return [field, value];
    });
    const row = Object.fromEntries(chosen) as Omit<UsageRow, "id" | "accountType" | "estimated">;
    return { ...row, id: Bun.randomUUIDv7(), accountType: null, estimated: false };
  });
}

type Sums = Record<string, number>;

/** The sums of rows by what they are counted under, by hand. */
function summed(
  rows: readonly UsageRow[],
  partsOf: (row: UsageRow) => string[][],
  sums: (row: UsageRow) => Sums,
) {
  const byKey = new Map<string, Sums>();
  for (const row of rows)
    for (const parts of partsOf(row)) {
      const total = byKey.get(parts.join(" ")) ?? {};
      for (const [name, value] of Object.entries(sums(row))) total[name] = (total[name] ?? 0) + value;
      byKey.set(parts.join(" "), total);
    }
  return Object.fromEntries(byKey);
}

async function stored(db: Database, table: string, keys: readonly string[]) {
  const rows = await db.all<Record<string, string | number | boolean>>(`SELECT * FROM ${table}`);
  const split = rows.map((row) => {
    const sums = Object.fromEntries(Object.entries(row).filter(([name]) => !keys.includes(name)));
    const parts = keys.map((key) => (key === "tagged" ? String(Boolean(row[key])) : row[key]));
    return [parts.join(" "), sums];
  });
  return Object.fromEntries(split);
}

const dayOf = ({ createdAtMs }: UsageRow) => new Date(createdAtMs).toISOString().slice(0, 10);
const monthOf = (row: UsageRow) => dayOf(row).slice(0, 7);
const costOf = ({ costNanoUsd }: UsageRow) => costNanoUsd ?? 0;
const tokensOf = ({ promptTokens, completionTokens }: UsageRow) => promptTokens + completionTokens;
const tokenSums = (row: UsageRow) => ({
  requests: 1,
  prompt_tokens: row.promptTokens,
  completion_tokens: row.completionTokens,
  cost_nano_usd: costOf(row),
});

onEachDatabase("the rollups of usage rows", (fresh) => {
  test("have the sums of the rows, whatever these have in common", async () => {
    const { options, drop } = await fresh();
    const db = await openStorage(options);
    try {
      const store = new UsageStore(db);
      const rows = rowsOf(3_000);
      for (const part of [rows.slice(0, 1_000), rows.slice(1_000)])
        await db.transaction((tx) => store.insert(tx, part));

      const months = summed(
        rows,
        (row) => [
          [row.userId, monthOf(row), ""],
          ...(row.project === null ? [] : [[row.userId, monthOf(row), row.project]]),
        ],
        (row) => {
          const ofQuota = row.points === null ? 1 : 0;
          const ofKeys = row.project === null ? 0 : ofQuota;
          return {
            requests: 1,
            tokens: tokensOf(row),
            cost_nano_usd: costOf(row),
            quota_tokens: ofQuota * tokensOf(row),
            quota_cost_nano_usd: ofQuota * costOf(row),
            key_quota_tokens: ofKeys * tokensOf(row),
            key_quota_cost_nano_usd: ofKeys * costOf(row),
          };
        },
      );
      expect(await stored(db, "usage_months", ["user_id", "month", "project"])).toEqual(months);

      const daySums = (row: UsageRow) => ({ ...tokenSums(row), total_tokens: tokensOf(row) });
      const days = summed(
        rows,
        (row) => [[dayOf(row), row.model, row.backend, String(row.refId !== null)]],
        daySums,
      );
      expect(await stored(db, "usage_days", ["day", "model", "backend", "tagged"])).toEqual(days);

      const refDays = summed(
        rows,
        (row) => (row.refId === null ? [] : [[row.refId, dayOf(row), row.model, row.backend]]),
        daySums,
      );
      expect(await stored(db, "usage_ref_days", ["ref_id", "day", "model", "backend"])).toEqual(refDays);

      const keyDays = summed(
        rows,
        (row) => [[dayOf(row), row.apiKeyId, row.project ?? "", row.userId]],
        (row) => ({ ...tokenSums(row), unpriced: row.costNanoUsd === null ? 1 : 0 }),
      );
      expect(await stored(db, "usage_key_days", ["day", "api_key_id", "project", "user_id"])).toEqual(
        keyDays,
      );

      const spent = KEYS.map((keyId) => {
        const own = rows.filter((row) => row.keyId === keyId);
        const cost = (of: readonly UsageRow[]) => of.reduce((sum, row) => sum + costOf(row), 0);
        return [
          keyId,
          {
            month: "2026-11",
            month_cost_nano_usd: cost(own.filter((row) => monthOf(row) === "2026-11")),
            total_cost_nano_usd: cost(own),
            requests: own.length,
            last_used_ms: Date.parse(TIMES[2]!),
          },
        ];
      });
      expect(await stored(db, "key_spend", ["key_id"])).toEqual(Object.fromEntries(spent));
    } finally {
      await db.close();
      await drop();
    }
  });
});
