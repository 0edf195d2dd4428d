import { expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { NO_ID } from "../../src/rooms/usage/batch.ts";
import { UsageStore } from "../../src/rooms/usage/for-thread.ts";
import type { RequestRow } from "../../src/rooms/usage/index.ts";
import { bucketOf } from "../../src/rooms/usage/rows.ts";
import type { Database } from "../../src/storage/contract.ts";
import { openStorage } from "../../src/storage/index.ts";
import { requestRow } from "../support/request-lines.ts";

const USERS = [crypto.randomUUID(), crypto.randomUUID()];
const KEYS = [crypto.randomUUID(), crypto.randomUUID()];
/** Two days of one month, and the next month. */
const TIMES = ["2026-10-30T23:59:59.999Z", "2026-10-31T00:00:00.000Z", "2026-11-01T00:00:00.000Z"];
const CHOICES = {
  userId: USERS,
  keyId: [...KEYS, null],
  project: ["web", "default", null],
  attribution: ["0a1b2c3d", "jwt-someone"],
  model: ["small", "large"],
  backend: ["first", null],
  channel: ["gateway", "rpc", null],
  status: [200, 429, 502, null],
  firstTokenMs: [null, 10, 30_000],
  durationMs: [25, 26, 300_000],
  promptTokens: [0, 3],
  completionTokens: [0, 50],
  costNanoUsd: [null, 0, 7_000],
  unpriced: [true, undefined],
  refId: [null, "job 1", "job 2"],
  points: [null, 0, 12],
  atMs: TIMES.map((time) => Date.parse(time)),
  cachedTokens: [2, undefined],
  cacheWriteTokens: [1, 0],
  cacheSavedNanoUsd: [-300, 900],
};

/** Every value of every field, in combinations that a step prime to all their numbers goes through. */
function rowsOf(count: number): RequestRow[] {
  return Array.from({ length: count }, (_, i) => {
    let rest = i * 7_919;
    const chosen = Object.entries(CHOICES).map(([field, values]) => {
      const value = values[rest % values.length]!;
      rest = Math.floor(rest / values.length);
      return [field, value];
    });
    return { ...requestRow(), ...(Object.fromEntries(chosen) as Partial<RequestRow>) };
  });
}

type Sums = Record<string, number>;

/** The sums of rows by what they are counted under, by hand. */
function summed(
  rows: readonly RequestRow[],
  partsOf: (row: RequestRow) => string[][],
  sums: (row: RequestRow) => Sums,
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
    const parts = keys.map((key) => row[key]);
    return [parts.join(" "), sums];
  });
  return Object.fromEntries(split);
}

const dayOf = ({ atMs }: RequestRow) => new Date(atMs).toISOString().slice(0, 10);
const monthOf = (row: RequestRow) => dayOf(row).slice(0, 7);
const costOf = ({ costNanoUsd }: RequestRow) => costNanoUsd ?? 0;
const tokensOf = ({ promptTokens, completionTokens }: RequestRow) => promptTokens + completionTokens;
const tokenSums = (row: RequestRow) => ({
  requests: 1,
  prompt_tokens: row.promptTokens,
  completion_tokens: row.completionTokens,
  cost_nano_usd: costOf(row),
  cached_tokens: row.cachedTokens ?? 0,
  cache_write_tokens: row.cacheWriteTokens ?? 0,
  cache_saved_nano_usd: row.cacheSavedNanoUsd ?? 0,
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

      const charged = rows.filter(({ channel }) => channel !== null);
      const months = summed(
        charged,
        (row) => [
          [row.userId!, monthOf(row), ""],
          ...(row.project === null ? [] : [[row.userId!, monthOf(row), row.project]]),
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

      const unpriced = (row: RequestRow) => (row.unpriced ? 1 : 0);
      const startOf = ({ atMs }: RequestRow, grainMs: number) => String(atMs - (atMs % grainMs));
      const [MINUTE, HOUR, DAY] = [60_000, 3_600_000, 86_400_000];
      const everyone = summed(
        rows,
        (row) =>
          [...[MINUTE, HOUR, DAY].map((ms) => [ms, NO_ID] as const), [DAY, row.userId!] as const].map(
            ([grainMs, who]) => [
              String(grainMs),
              who,
              startOf(row, grainMs),
              row.surface ?? "",
              row.model ?? "",
              row.backend ?? "",
              row.channel ?? "",
              String(row.status ?? 0),
              row.code ?? "",
            ],
          ),
        (row) => ({
          ...tokenSums(row),
          unpriced: unpriced(row),
          ...Object.fromEntries(
            Array.from({ length: 15 }, (_, i) => [
              `first_token_${i}`,
              row.firstTokenMs !== null && bucketOf(row.firstTokenMs) === i ? 1 : 0,
            ]),
          ),
          ...Object.fromEntries(
            Array.from({ length: 15 }, (_, i) => [`duration_${i}`, bucketOf(row.durationMs) === i ? 1 : 0]),
          ),
        }),
      );
      const kind = [
        "grain_ms",
        "user_id",
        "start_ms",
        "surface",
        "model",
        "backend",
        "channel",
        "status",
        "code",
      ];
      expect(await stored(db, "request_sums", kind)).toEqual(everyone);

      const refDays = summed(
        rows,
        (row) =>
          row.refId === null || row.channel === null
            ? []
            : [[row.refId, startOf(row, DAY), row.model!, row.channel]],
        tokenSums,
      );
      expect(await stored(db, "request_ref_days", ["ref_id", "start_ms", "model", "channel"])).toEqual(
        refDays,
      );

      const asker = ["start_ms", "user_id", "api_key_id", "key_id", "project", "group_id", "channel"];
      const askerDays = summed(
        rows,
        (row) => [
          [
            startOf(row, DAY),
            row.userId!,
            row.attribution!,
            row.keyId ?? NO_ID,
            row.project ?? "",
            NO_ID,
            row.channel ?? "",
          ],
        ],
        (row) => ({
          ...tokenSums(row),
          unpriced: unpriced(row),
          charges_only: row.status === null ? 1 : 0,
          unanswered: row.status !== null && row.status >= 400 ? 1 : 0,
        }),
      );
      expect(await stored(db, "request_asker_days", asker)).toEqual(askerDays);

      const spent = KEYS.map((keyId) => {
        const own = charged.filter((row) => row.keyId === keyId);
        const cost = (of: readonly RequestRow[]) => of.reduce((sum, row) => sum + costOf(row), 0);
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
