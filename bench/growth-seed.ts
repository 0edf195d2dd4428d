import type { Database } from "../packages/gateway/src/storage/contract.ts";

const DAYS = 90;
const ROWS_PER_STATEMENT = 100_000;

/** Expressions that the two databases write differently, for row number `n`. */
const dialects = {
  sqlite: {
    series: (from: number, to: number) =>
      `WITH RECURSIVE series (n) AS (SELECT ${from} UNION ALL SELECT n + 1 FROM series WHERE n < ${to})`,
    from: "series",
    uuid: "printf('01900000-0000-7000-8000-%012x', n)",
    user: "printf('00000000-0000-4000-8000-%012d', USER)",
    id: (uuid: string) => `'${uuid}'`,
    key: "printf('11111111-0000-4000-8000-%012d', USER)",
    time: (secondsAgo: string, endMs: number) =>
      `strftime('%Y-%m-%dT%H:%M:%fZ', ${endMs / 1000} - ${secondsAgo}, 'unixepoch')`,
    day: "substr(created_at, 1, 10)",
    month: "substr(created_at, 1, 7)",
    text: (n: string) => `CAST(${n} AS TEXT)`,
  },
  postgres: {
    series: () => "",
    from: "",
    uuid: "('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid",
    user: "('00000000-0000-4000-8000-' || lpad((USER)::text, 12, '0'))::uuid",
    id: (uuid: string) => `'${uuid}'::uuid`,
    key: "('11111111-0000-4000-8000-' || lpad((USER)::text, 12, '0'))::uuid",
    time: (secondsAgo: string, endMs: number) => `to_timestamp(${endMs / 1000} - ${secondsAgo})`,
    day: "to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
    month: "to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM')",
    text: (n: string) => `(${n})::text`,
  },
};

export interface Seed {
  /** The time of the last row. */
  endMs: number;
  /** The user with a fifth of all rows. */
  heavyUser: string;
}

/**
 * Fills a migrated database without usage with `rows` usage rows over the 90 days before `endMs`, and with their
 * rollups, in the order of time as a service would have written them: 200 users, of whom one has a fifth of the
 * rows; 8 models; 3 backends; every 20th row tagged.
 */
export async function seedUsage(db: Database, rows: number, { endMs, heavyUser }: Seed): Promise<void> {
  const d = dialects[db.dialect];
  const userId = `CASE WHEN n % 5 = 0 THEN ${d.id(heavyUser)} ELSE ${d.user.replace("USER", "n % 199 + 1")} END`;
  const secondsAgo = `(${rows} - n) * ${(DAYS * 86_400) / rows}`;
  const user = "CASE WHEN n % 5 = 0 THEN 0 ELSE n % 199 + 1 END";
  for (let start = 1; start <= rows; start += ROWS_PER_STATEMENT) {
    const end = Math.min(rows, start + ROWS_PER_STATEMENT - 1);
    const from = d.from || `generate_series(${start}, ${end}) AS series (n)`;
    await db.run(`INSERT INTO usage_records (id, user_id, key_id, project, api_key_id, model, backend,
        prompt_tokens, completion_tokens, total_tokens, cost, created_at, created_ms, ref_id, points, account_type, estimated)
      ${d.series(start, end)}
      SELECT ${d.uuid}, ${userId}, ${d.key.replace("USER", user)},
        CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'default' END, 'k' || ${d.text(user)}, 'model-' || ${d.text("n % 8")},
        'backend-' || ${d.text("n % 3")}, n % 1000, n % 500, n % 1000 + n % 500, (n % 1000) * 0.000001,
        ${d.time(secondsAgo, endMs)}, CAST(${endMs} - ${secondsAgo} * 1000 AS BIGINT), CASE WHEN n % 20 = 0 THEN 'ref-' || ${d.text("n % 400")} END, NULL, NULL, FALSE
      FROM ${from}`);
  }
  const nano = "CAST(ROUND(SUM(cost) * 1000000000.0) AS BIGINT)";
  const sums = `COUNT(*), SUM(prompt_tokens), SUM(completion_tokens), SUM(total_tokens), ${nano}`;
  await db.run(
    `INSERT INTO usage_days SELECT ${d.day}, model, backend, ref_id IS NOT NULL, ${sums} FROM usage_records GROUP BY 1, 2, 3, 4`,
  );
  await db.run(
    `INSERT INTO usage_ref_days SELECT ref_id, ${d.day}, model, backend, ${sums} FROM usage_records
     WHERE ref_id IS NOT NULL GROUP BY 1, 2, 3, 4`,
  );
  await db.run(
    `INSERT INTO usage_key_days SELECT ${d.day}, api_key_id, COALESCE(project, ''), user_id, COUNT(*), SUM(prompt_tokens),
       SUM(completion_tokens), ${nano}, 0 FROM usage_records GROUP BY 1, 2, 3, 4`,
  );
  for (const project of ["''", "project"]) {
    await db.run(
      `INSERT INTO usage_months SELECT user_id, ${d.month}, ${project}, COUNT(*), SUM(total_tokens), ${nano},
         SUM(total_tokens), ${nano}, SUM(total_tokens), ${nano} FROM usage_records GROUP BY 1, 2, 3`,
    );
  }
}
