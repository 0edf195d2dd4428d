import { BUCKET_COUNT, DAY_MS, HOUR_MS, MINUTE_MS } from "../packages/gateway/src/rooms/usage/index.ts";
import type { Database } from "../packages/gateway/src/storage/contract.ts";

const DAYS = 90;
const ROWS_PER_STATEMENT = 100_000;

/** Expressions that the two databases write differently, for row number `n`. */
const dialects = {
  sqlite: {
    series: (from: number, to: number) =>
      `WITH RECURSIVE series (n) AS (SELECT ${from} UNION ALL SELECT n + 1 FROM series WHERE n < ${to})`,
    from: "series",
    uuid: (prefix: string, n: string) => `printf('${prefix}-%012x', ${n})`,
    id: (uuid: string) => `'${uuid}'`,
    month: "strftime('%Y-%m', ended_ms / 1000, 'unixepoch')",
  },
  postgres: {
    series: () => "",
    from: "",
    uuid: (prefix: string, n: string) => `('${prefix}-' || lpad(to_hex(${n}), 12, '0'))::uuid`,
    id: (uuid: string) => `'${uuid}'::uuid`,
    month: "to_char(to_timestamp(ended_ms / 1000) AT TIME ZONE 'UTC', 'YYYY-MM')",
  },
};

export interface Seed {
  /** The time of the last row. */
  endMs: number;
  /** The user with a fifth of all rows. */
  heavyUser: string;
}

/**
 * Fills a migrated database without requests with `rows` of them over the 90 days before `endMs`, and with their sums, in
 * the order of time as a service would have written them: 200 users, of whom one has a fifth of the rows; 8 models;
 * 3 channels; every 20th row tagged.
 */
export async function seedUsage(db: Database, rows: number, { endMs, heavyUser }: Seed): Promise<void> {
  const d = dialects[db.dialect];
  const text = (n: string) => `CAST(${n} AS TEXT)`;
  const user = "CASE WHEN n % 5 = 0 THEN 0 ELSE n % 199 + 1 END";
  const userId = `CASE WHEN n % 5 = 0 THEN ${d.id(heavyUser)} ELSE ${d.uuid("00000000-0000-4000-8000", user)} END`;
  const agoMs = `CAST((${rows} - n) * ${(DAYS * DAY_MS) / rows} AS BIGINT)`;
  for (let start = 1; start <= rows; start += ROWS_PER_STATEMENT) {
    const end = Math.min(rows, start + ROWS_PER_STATEMENT - 1);
    const from = d.from || `generate_series(${start}, ${end}) AS series (n)`;
    await db.run(`INSERT INTO requests (id, ended_ms, user_id, key_id, api_key_id, project, surface, model, backend,
        reason, status, attempts, queue_ms, duration_ms, prompt_tokens, completion_tokens, cached_tokens,
        cache_write_tokens, reasoning_tokens, cache_saved_nano_usd, estimated, cost_nano_usd,
        channel, ref_id)
      ${d.series(start, end)}
      SELECT ${d.uuid("01900000-0000-7000-8000", "n")}, ${endMs} - ${agoMs}, ${userId},
        ${d.uuid("11111111-0000-4000-8000", user)}, 'k' || ${text(user)},
        CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'default' END, '/v1/chat/completions', 'model-' || ${text("n % 8")},
        'first', 'only_backend', 200, 1, 1, 40, n % 1000, n % 500, 0, 0, 0, 0, FALSE, (n % 1000) * 1000,
        'backend-' || ${text("n % 3")}, CASE WHEN n % 20 = 0 THEN 'ref-' || ${text("n % 400")} END
      FROM ${from}`);
  }
  const figures = "COUNT(*), SUM(prompt_tokens), SUM(completion_tokens), SUM(cost_nano_usd)";
  const zeros = (count: number) => new Array(count).fill("0").join(", ");
  /** Nothing was read from a cache, written to one or saved by it. */
  const cache = zeros(3);
  const day = `ended_ms - ended_ms % ${DAY_MS}`;
  const none = d.id("00000000-0000-0000-0000-000000000000");
  const wholes = [MINUTE_MS, HOUR_MS, DAY_MS].map((grainMs) => [grainMs, none] as const);
  for (const [grainMs, whose] of [...wholes, [DAY_MS, "user_id"] as const])
    await db.run(
      `INSERT INTO request_sums SELECT ${grainMs}, ${whose}, ended_ms - ended_ms % ${grainMs}, surface, model, backend, channel,
         status, '', ${figures}, 0, ${zeros(BUCKET_COUNT)}, 0, COUNT(*), ${zeros(BUCKET_COUNT - 2)}, ${cache}
       FROM requests GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9`,
    );
  await db.run(
    `INSERT INTO request_asker_days SELECT ${day}, user_id, api_key_id, key_id, project, ${none}, channel, COUNT(*), 0, 0,
       SUM(prompt_tokens), SUM(completion_tokens), SUM(cost_nano_usd), 0, ${cache}
     FROM requests GROUP BY 1, 2, 3, 4, 5, 6, 7`,
  );
  await db.run(
    `INSERT INTO request_ref_days SELECT ref_id, ${day}, model, channel, ${figures}, ${cache} FROM requests
     WHERE ref_id IS NOT NULL GROUP BY 1, 2, 3, 4`,
  );
  const tokens = "SUM(prompt_tokens + completion_tokens)";
  const nano = "SUM(cost_nano_usd)";
  for (const project of ["''", "project"])
    await db.run(
      `INSERT INTO usage_months SELECT user_id, ${d.month}, ${project}, COUNT(*), ${tokens}, ${nano}, ${tokens}, ${nano},
         ${tokens}, ${nano} FROM requests GROUP BY 1, 2, 3`,
    );
}
