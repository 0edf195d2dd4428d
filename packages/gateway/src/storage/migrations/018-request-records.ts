import type { Migration } from "../migrate.ts";

/** Times are counted in so many buckets, so that quantiles can be read from sums. */
const BUCKET_COUNT = 15;
const columns = (name: string): string =>
  Array.from({ length: BUCKET_COUNT }, (_, i) => `${name}${i} INTEGER NOT NULL`).join(", ");

/** What people called the service for, and sums of it. */
export const requestRecords: Migration = {
  id: 18,
  name: "request records",
  statements: [
    // Few combinations occur, so rows name them by number: that keeps rows small and sums by any of them cheap.
    `CREATE TABLE request_facets (
      id {bigint} PRIMARY KEY,
      surface TEXT NOT NULL,
      model TEXT NOT NULL,
      backend TEXT NOT NULL,
      status INTEGER NOT NULL,
      code TEXT NOT NULL
    )`,
    `CREATE TABLE request_askers (
      id {bigint} PRIMARY KEY,
      user_id {uuid},
      key_id {uuid},
      group_id {uuid},
      project TEXT,
      key_prefix TEXT
    )`,
    "CREATE INDEX request_askers_user ON request_askers (user_id)",
    "CREATE INDEX request_askers_group ON request_askers (group_id) WHERE group_id IS NOT NULL",
    "CREATE INDEX request_askers_key ON request_askers (key_id) WHERE key_id IS NOT NULL",
    // In the order of time, which the id says. There is no other index: the sums say which hours hold what is
    // looked for, and each index would cost as much as the row. What is only shown is one text, for the same reason.
    {
      sqlite: [`CREATE TABLE request_records (${recordColumns()}) WITHOUT ROWID`],
      postgres: [`CREATE TABLE request_records (${recordColumns()})`],
    },
    // By minute, hour and day: of everyone, and of each asker.
    {
      sqlite: [
        `CREATE TABLE request_sums (${sumColumns("facet_id")}) WITHOUT ROWID`,
        `CREATE TABLE request_asker_sums (asker_id {bigint} NOT NULL, ${sumColumns("asker_id, facet_id")}) WITHOUT ROWID`,
      ],
      postgres: [
        `CREATE TABLE request_sums (${sumColumns("facet_id")})`,
        `CREATE TABLE request_asker_sums (asker_id {bigint} NOT NULL, ${sumColumns("asker_id, facet_id")})`,
      ],
    },
    "CREATE INDEX request_asker_sums_asker ON request_asker_sums (asker_id, grain_ms, start_ms)",
  ],
};

function recordColumns(): string {
  return `id {uuid} PRIMARY KEY,
    asker_id {bigint} NOT NULL,
    facet_id {bigint} NOT NULL,
    facts TEXT NOT NULL`;
}

function sumColumns(by: string): string {
  return `grain_ms {bigint} NOT NULL,
    start_ms {bigint} NOT NULL,
    facet_id {bigint} NOT NULL,
    requests {bigint} NOT NULL,
    prompt_tokens {bigint} NOT NULL,
    completion_tokens {bigint} NOT NULL,
    cost_nano_usd {bigint} NOT NULL,
    ${columns("first_token_")}, ${columns("duration_")},
    PRIMARY KEY (grain_ms, start_ms, ${by})`;
}
