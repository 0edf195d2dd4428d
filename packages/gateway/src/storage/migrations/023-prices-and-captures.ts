import type { Migration } from "../migrate.ts";

/**
 * Prices that administrators set may be by other units than the token. Prompts are kept of the keys that they name.
 * What the console shows by key has sums of its own.
 */
export const pricesAndCaptures: Migration = {
  id: 23,
  name: "unit prices, captured prompts, sums by key",
  statements: [
    // SQLite cannot drop a NOT NULL, so the table is made again.
    `CREATE TABLE model_prices_by_unit (
      model TEXT PRIMARY KEY CHECK (length(model) <= 256),
      input_usd {double} CHECK (input_usd >= 0),
      output_usd {double} CHECK (output_usd >= 0),
      per_call_usd {double} CHECK (per_call_usd >= 0),
      per_image_usd TEXT,
      per_second_usd {double} CHECK (per_second_usd >= 0),
      per_million_characters_usd {double} CHECK (per_million_characters_usd >= 0),
      updated_at {timestamp} NOT NULL
    )`,
    `INSERT INTO model_prices_by_unit (model, input_usd, output_usd, updated_at)
     SELECT model, input_usd, output_usd, updated_at FROM model_prices`,
    "DROP TABLE model_prices",
    "ALTER TABLE model_prices_by_unit RENAME TO model_prices",
    "ALTER TABLE api_keys ADD COLUMN capture_until {timestamp}",
    `CREATE TABLE captured_prompts (
      request_id {uuid} PRIMARY KEY,
      key_id {uuid} NOT NULL,
      asked TEXT NOT NULL,
      answered TEXT
    )`,
    "CREATE INDEX captured_prompts_key ON captured_prompts (key_id)",
    // Of each asker by day, without what they asked for: the pages that compare askers read nothing else.
    {
      sqlite: [`CREATE TABLE request_asker_days (${askerDayColumns()}) WITHOUT ROWID`],
      postgres: [`CREATE TABLE request_asker_days (${askerDayColumns()})`],
    },
    `INSERT INTO request_asker_days (start_ms, asker_id, requests, unanswered, prompt_tokens, completion_tokens,
       cost_nano_usd)
     SELECT s.start_ms, s.asker_id, SUM(s.requests), SUM(CASE WHEN f.status >= 400 THEN s.requests ELSE 0 END),
       SUM(s.prompt_tokens), SUM(s.completion_tokens), SUM(s.cost_nano_usd)
     FROM request_asker_sums s JOIN request_facets f ON f.id = s.facet_id
     WHERE s.grain_ms = 86400000 GROUP BY s.start_ms, s.asker_id`,
    // When the first and the last of an hour came; null: not known, as of sums that are older than this.
    "ALTER TABLE request_asker_sums ADD COLUMN first_ms {bigint}",
    "ALTER TABLE request_asker_sums ADD COLUMN last_ms {bigint}",
    // Usage by key and project, of whole days. A row without a project has the empty text.
    `CREATE TABLE usage_key_days (
      day TEXT NOT NULL,
      api_key_id TEXT NOT NULL,
      project TEXT NOT NULL,
      user_id {uuid} NOT NULL,
      requests {bigint} NOT NULL,
      prompt_tokens {bigint} NOT NULL,
      completion_tokens {bigint} NOT NULL,
      cost_nano_usd {bigint} NOT NULL,
      unpriced {bigint} NOT NULL,
      PRIMARY KEY (day, api_key_id, project, user_id)
    )`,
    "CREATE INDEX usage_key_days_user ON usage_key_days (user_id, day)",
    {
      sqlite: [fillKeyDays("substr(created_at, 1, 10)")],
      postgres: [fillKeyDays("to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')")],
    },
  ],
};

function askerDayColumns(): string {
  return `start_ms {bigint} NOT NULL,
    asker_id {bigint} NOT NULL,
    requests {bigint} NOT NULL,
    unanswered {bigint} NOT NULL,
    prompt_tokens {bigint} NOT NULL,
    completion_tokens {bigint} NOT NULL,
    cost_nano_usd {bigint} NOT NULL,
    PRIMARY KEY (start_ms, asker_id)`;
}

function fillKeyDays(day: string): string {
  return `INSERT INTO usage_key_days (day, api_key_id, project, user_id, requests, prompt_tokens, completion_tokens,
      cost_nano_usd, unpriced)
    SELECT ${day}, api_key_id, COALESCE(project, ''), user_id, COUNT(*), SUM(prompt_tokens), SUM(completion_tokens),
      COALESCE(SUM(CAST(ROUND(cost * 1000000000.0) AS BIGINT)), 0), SUM(CASE WHEN cost IS NULL THEN 1 ELSE 0 END)
    FROM usage_records GROUP BY 1, 2, 3, 4`;
}
