import { expect } from "bun:test";
import type { Database } from "../../src/storage/contract.ts";

const DAY_MS = 86_400_000;
const GRAINS_MS = [60_000, 3_600_000, DAY_MS];
const BUCKETS = Array.from({ length: 15 }, (_, i) => i);
const NO_ID = "00000000-0000-0000-0000-000000000000";

const start = (grainMs: number) => `ended_ms - ended_ms % ${grainMs} AS start_ms`;
const or = (column: string, none: string) => `COALESCE(${column}, ${none}) AS ${column}`;
const sum = (column: string, name = column) => `CAST(SUM(${column}) AS BIGINT) AS ${name}`;
const count = (condition: string, name: string) => sum(`CASE WHEN ${condition} THEN 1 ELSE 0 END`, name);
const COUNTED = [
  "COUNT(*) AS requests",
  sum("prompt_tokens"),
  sum("completion_tokens"),
  sum("COALESCE(cost_nano_usd, 0)", "cost_nano_usd"),
];
const UNPRICED = count("channel IS NOT NULL AND cost_nano_usd IS NULL", "unpriced");
const SUMMED = ["requests", "prompt_tokens", "completion_tokens", "cost_nano_usd"];

/** Each table of sums as it is, and as the rows say it should be. */
const PAIRS: readonly [stored: string, counted: string][] = [
  ...GRAINS_MS.map((grainMs): [string, string] => {
    const kind = ["surface", "model", "backend", "channel", "status", "code"];
    const stored = `SELECT start_ms, ${[...kind, ...SUMMED, "unpriced"].join(", ")},
      ${BUCKETS.map((i) => `first_token_${i}`).join(" + ")} AS first_tokens,
      ${BUCKETS.map((i) => `duration_${i}`).join(" + ")} AS durations FROM request_sums WHERE grain_ms = ${grainMs} AND user_id = '${NO_ID}'`;
    const parts = kind.map((column) => or(column, column === "status" ? "0" : "''"));
    const counted = `SELECT ${start(grainMs)}, ${parts.join(", ")}, ${[...COUNTED, UNPRICED].join(", ")},
      COUNT(first_token_ms) AS first_tokens, COUNT(*) AS durations FROM requests GROUP BY 1, 2, 3, 4, 5, 6, 7`;
    return [stored, counted];
  }),
  [
    `SELECT start_ms, user_id, surface, status, ${SUMMED.map((column) => sum(column)).join(", ")} FROM request_sums
     WHERE user_id <> '${NO_ID}' GROUP BY 1, 2, 3, 4`,
    `SELECT ${start(DAY_MS)}, user_id, ${or("surface", "''")}, ${or("status", "0")}, ${COUNTED.join(", ")} FROM requests
     WHERE user_id IS NOT NULL GROUP BY 1, 2, 3, 4`,
  ],
  [
    `SELECT start_ms, user_id, api_key_id, key_id, project, group_id, channel, ${SUMMED.join(", ")}, unpriced,
       charges_only, unanswered FROM request_asker_days`,
    `SELECT ${start(DAY_MS)}, ${or("user_id", `'${NO_ID}'`)}, ${or("api_key_id", "''")}, ${or("key_id", `'${NO_ID}'`)},
       ${or("project", "''")}, ${or("group_id", `'${NO_ID}'`)}, ${or("channel", "''")}, ${[...COUNTED, UNPRICED].join(", ")},
       ${count("status IS NULL", "charges_only")}, ${count("status >= 400", "unanswered")}
     FROM requests GROUP BY 1, 2, 3, 4, 5, 6, 7`,
  ],
  [
    `SELECT ref_id, start_ms, model, channel, ${SUMMED.join(", ")} FROM request_ref_days`,
    `SELECT ref_id, ${start(DAY_MS)}, model, channel, ${COUNTED.join(", ")} FROM requests
     WHERE ref_id IS NOT NULL AND channel IS NOT NULL GROUP BY 1, 2, 3, 4`,
  ],
  [
    "SELECT user_id, project, requests, tokens, cost_nano_usd, quota_tokens FROM usage_months WHERE project <> ''",
    `SELECT user_id, project, COUNT(*) AS requests, ${sum("prompt_tokens + completion_tokens", "tokens")},
       ${sum("COALESCE(cost_nano_usd, 0)", "cost_nano_usd")},
       ${sum("CASE WHEN points IS NULL THEN prompt_tokens + completion_tokens ELSE 0 END", "quota_tokens")}
     FROM requests WHERE channel IS NOT NULL AND project IS NOT NULL GROUP BY 1, 2`,
  ],
  [
    "SELECT key_id, requests, total_cost_nano_usd, last_used_ms FROM key_spend",
    ["key_id", "group_id"]
      .map(
        (
          id,
        ) => `SELECT CAST(${id} AS TEXT) ${id === "group_id" ? "|| '/' || CAST(user_id AS TEXT)" : ""} AS key_id,
           COUNT(*) AS requests, ${sum("COALESCE(cost_nano_usd, 0)", "total_cost_nano_usd")},
           MAX(ended_ms) AS last_used_ms FROM requests WHERE channel IS NOT NULL AND ${id} IS NOT NULL GROUP BY 1`,
      )
      .join(" UNION ALL "),
  ],
];

/** Every sum is the sum of the rows that are there. To be used while all of them are, and lie in one month. */
export async function expectSumsOfRows(db: Database): Promise<void> {
  const sorted = async (sql: string) => {
    const rows = await db.all<Record<string, unknown>>(sql);
    return rows.map((row) => JSON.stringify(Object.entries(row).sort())).sort();
  };
  for (const [stored, counted] of PAIRS) expect(await sorted(stored)).toEqual(await sorted(counted));
}
