import {
  BUCKET_COUNT,
  BUCKETS_MS,
  DAY_MS,
  HOUR_MS,
  MINUTE_MS,
  NO_ID,
  SUM_COLUMNS,
  summed,
  utcMonth,
} from "../packages/gateway/src/rooms/usage/index.ts";
import type { Database } from "../packages/gateway/src/storage/contract.ts";

const ROWS_PER_STATEMENT = 100_000;
/** Of the user with the most requests: as many as one account may have active. */
export const KEYS_OF_ONE = 500;
/** Numbers of keys and people begin here. */
const FIRST_KEY = 100_000;
const FIRST_PERSON = 1_000_000;
const KEYS_PER_PERSON = 4;
const PRIME = 2_147_483_647;
/** Sums by minute are kept for so long. */
const MINUTES_KEPT_MS = 3 * DAY_MS;

const uuid = (n: number) => `00000000-0000-4000-8000-${n.toString(16).padStart(12, "0")}`;
export const keyIdOf = (key: number): string => uuid(FIRST_KEY + key);
export const personOf = (key: number): string => uuid(FIRST_PERSON + Math.floor(key / KEYS_PER_PERSON));

/** What the two databases write differently. */
const dialects = {
  sqlite: {
    series: (from: number, to: number) =>
      `(WITH RECURSIVE series (n) AS (SELECT ${from} UNION ALL SELECT n + 1 FROM series WHERE n < ${to})
        SELECT n FROM series)`,
    hex: (n: string, digits: number) => `printf('%0${digits}x', ${n})`,
    id: (text: string) => text,
    month: "strftime('%Y-%m', start_ms / 1000, 'unixepoch')",
    indexes:
      "SELECT name, sql FROM sqlite_master WHERE tbl_name = 'requests' AND type = 'index' AND sql <> ''",
    // What is half made is thrown away anyway, and is made with more memory than a service takes.
    before: ["PRAGMA synchronous = OFF", "PRAGMA cache_size = -500000"],
    after: [],
  },
  postgres: {
    series: (from: number, to: number) =>
      `(SELECT n FROM generate_series(CAST(${from} AS BIGINT), ${to}) AS series (n))`,
    hex: (n: string, digits: number) => `lpad(to_hex(${n}), ${digits}, '0')`,
    id: (text: string) => `CAST(${text} AS UUID)`,
    month: "to_char(to_timestamp(start_ms / 1000) AT TIME ZONE 'UTC', 'YYYY-MM')",
    indexes: `SELECT indexname AS name, indexdef AS sql FROM pg_indexes
      WHERE tablename = 'requests' AND indexname <> 'requests_pkey'`,
    before: [],
    after: ["VACUUM ANALYZE"],
  },
};

export interface Seed {
  /** The time of the last row. */
  endMs: number;
  /** The user with a fifth of all rows. */
  heavyUser: string;
  days?: number;
  /** Four a person. */
  keys?: number;
}

/**
 * Fills a migrated database without requests with `rows` of them over the days before `endMs`, and with their sums, in
 * the order of time as a service would have written them: 4 models and a rare one, every 33rd request failed, every
 * 20th tagged. How long its indexes took is returned: they are made at the end, from all rows.
 */
export async function seedUsage(
  db: Database,
  rows: number,
  { endMs, heavyUser, days = 90, keys = 800 }: Seed,
): Promise<{ indexesMs: number }> {
  const d = dialects[db.dialect];
  for (const sql of d.before) await db.run(sql);
  const indexes = await db.all<{ name: string; sql: string }>(d.indexes);
  for (const { name } of indexes) await db.run(`DROP INDEX ${name}`);

  /** A number below `end` that looks drawn, and is the same in every run. */
  const drawn = (factor: number, end: string | number) => `((n * ${factor}) % ${PRIME} * ${end}) / ${PRIME}`;
  const id = (number: string) => d.id(`'00000000-0000-4000-8000-' || ${d.hex(number, 12)}`);
  const key = `${FIRST_KEY} + key`;
  const began = "ended_ms - duration_ms";
  const requestId = [d.hex(`(${began}) / 65536`, 8), d.hex(`(${began}) % 65536`, 4)].join(" || '-' || ");
  const answered = (sql: string, otherwise: string) =>
    `CASE WHEN status = 200 THEN ${sql} ELSE ${otherwise} END`;
  for (let start = 1; start <= rows; start += ROWS_PER_STATEMENT)
    await db.run(`INSERT INTO requests (id, ended_ms, user_id, key_id, api_key_id, project, surface, model, backend,
        reason, status, code, attempts, queue_ms, first_token_ms, duration_ms, prompt_tokens, completion_tokens,
        cached_tokens, cache_write_tokens, reasoning_tokens, cache_saved_nano_usd, estimated, cost_nano_usd, channel, ref_id)
      SELECT ${d.id(`${requestId} || '-7000-8000-' || ${d.hex("n", 12)}`)}, ended_ms,
        CASE WHEN n % 5 = 0 THEN ${d.id(`'${heavyUser}'`)} ELSE ${id(`${FIRST_PERSON} + key / ${KEYS_PER_PERSON}`)} END,
        ${id(key)}, ${d.hex(key, 8)}, CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'default' END, '/v1/chat/completions',
        CASE kind WHEN 0 THEN 'gpt-5' WHEN 1 THEN 'claude' WHEN 2 THEN 'llama' WHEN 3 THEN 'qwen' ELSE 'rare' END,
        CASE kind WHEN 0 THEN 'openai' WHEN 1 THEN 'anthropic' WHEN 2 THEN 'local-1' ELSE 'local-2' END,
        'fewest_requests', status, CASE status WHEN 429 THEN 'rate_limit_exceeded' WHEN 502 THEN 'bad_gateway' END,
        1, 1, ${answered("duration_ms / 4", "NULL")}, duration_ms, ${answered("100", "0")}, ${answered("200", "0")},
        0, 0, 0, 0, FALSE, ${answered("1000", "NULL")}, ${answered("'gateway'", "NULL")},
        CASE WHEN status = 200 AND n % 20 = 0 THEN 'ref-' || CAST(n % 400 AS TEXT) END
      FROM (SELECT n, ${endMs} - CAST((${rows} - n) * ${(days * DAY_MS) / rows} AS BIGINT) AS ended_ms,
          ${drawn(1_327_217_884, `CASE WHEN n % 5 = 0 THEN ${Math.min(keys, KEYS_OF_ONE)} ELSE ${keys} END`)} AS key,
          CASE WHEN ${drawn(889_516_852, 500)} = 0 THEN 4 ELSE ${drawn(1_572_067_135, 4)} END AS kind,
          CASE ${drawn(506_950_232, 66)} WHEN 0 THEN 429 WHEN 1 THEN 502 ELSE 200 END AS status,
          200 + CAST(power((n * 1386630019) % ${PRIME} / ${PRIME}.0, 4) * 20000 AS BIGINT) AS duration_ms
        FROM ${d.series(start, Math.min(rows, start + ROWS_PER_STATEMENT - 1))} AS numbers) AS chosen`);

  const bucket = (column: string, i: number) => {
    const bounds = [
      i > 0 && `${column} > ${BUCKETS_MS[i - 1]}`,
      i < BUCKETS_MS.length && `${column} <= ${BUCKETS_MS[i]}`,
    ];
    return `COUNT(CASE WHEN ${bounds.filter(Boolean).join(" AND ")} THEN 1 END)`;
  };
  const buckets = (column: string) =>
    Array.from({ length: BUCKET_COUNT }, (_, i) => bucket(column, i)).join(", ");
  const everyone = d.id(`'${NO_ID}'`);
  const figures = "SUM(prompt_tokens), SUM(completion_tokens), COALESCE(SUM(cost_nano_usd), 0)";
  /** Nothing was read from a cache, written to one or saved by it. */
  const cache = "0, 0, 0";
  const since = (grainMs: number) => `ended_ms - ended_ms % ${grainMs}`;
  for (const [grainMs, whose] of [
    [MINUTE_MS, everyone],
    [DAY_MS, "user_id"],
  ] as const)
    await db.run(
      `INSERT INTO request_sums SELECT ${grainMs}, ${whose}, ${since(grainMs)}, surface, model, backend,
         COALESCE(channel, ''), status, COALESCE(code, ''), COUNT(*), ${figures}, 0, ${buckets("first_token_ms")},
         ${buckets("duration_ms")}, ${cache}
       FROM requests GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9`,
    );
  for (const grainMs of [HOUR_MS, DAY_MS])
    await db.run(
      `INSERT INTO request_sums SELECT ${grainMs}, user_id, start_ms - start_ms % ${grainMs}, surface, model, backend,
         channel, status, code, ${summed(SUM_COLUMNS)}
       FROM request_sums WHERE grain_ms = ${MINUTE_MS} GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9`,
    );
  await db.run(
    `DELETE FROM request_sums WHERE grain_ms = ${MINUTE_MS} AND user_id = ${everyone} AND start_ms < ${endMs - MINUTES_KEPT_MS}`,
  );
  await db.run(
    `INSERT INTO request_asker_days SELECT ${since(DAY_MS)}, user_id, api_key_id, key_id, project, ${everyone},
       COALESCE(channel, ''), COUNT(*), 0, COUNT(CASE WHEN status >= 400 THEN 1 END), ${figures}, 0, ${cache}
     FROM requests GROUP BY 1, 2, 3, 4, 5, 6, 7`,
  );
  await db.run(
    `INSERT INTO request_ref_days SELECT ref_id, ${since(DAY_MS)}, model, channel, COUNT(*), ${figures}, ${cache}
     FROM requests WHERE ref_id IS NOT NULL GROUP BY 1, 2, 3, 4`,
  );
  const tokens = "SUM(prompt_tokens + completion_tokens)";
  const nano = "SUM(cost_nano_usd)";
  for (const project of ["''", "project"])
    await db.run(
      `INSERT INTO usage_months SELECT user_id, ${d.month}, ${project}, SUM(requests), ${tokens}, ${nano}, ${tokens},
         ${nano}, ${tokens}, ${nano} FROM request_asker_days WHERE channel <> '' GROUP BY 1, 2, 3`,
    );
  const newest = utcMonth(endMs);
  await db.run(
    `INSERT INTO key_spend SELECT CAST(key_id AS TEXT), '${newest}',
       SUM(CASE WHEN ${d.month} = '${newest}' THEN cost_nano_usd ELSE 0 END), ${nano}, SUM(requests), MAX(start_ms)
     FROM request_asker_days WHERE channel <> '' GROUP BY 1`,
  );
  const startedAt = performance.now();
  for (const { sql } of indexes) await db.run(sql);
  const indexesMs = performance.now() - startedAt;
  for (const sql of d.after) await db.run(sql);
  return { indexesMs };
}
