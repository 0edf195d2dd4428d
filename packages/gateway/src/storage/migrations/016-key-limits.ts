import type { Migration } from "../migrate.ts";

/** What existing rows say, where the two databases have different functions for the month of a timestamp. */
const spendSoFar = (month: string) => `
  INSERT INTO key_spend (key_id, month, month_cost_nano_usd, total_cost_nano_usd, requests, last_used_ms)
  SELECT r.key_id, newest.month,
    COALESCE(SUM(CASE WHEN ${month} = newest.month THEN CAST(ROUND(r.cost * 1000000000) AS {bigint}) END), 0),
    COALESCE(SUM(CAST(ROUND(r.cost * 1000000000) AS {bigint})), 0), COUNT(*), MAX(r.created_ms)
  FROM usage_records r
  JOIN (SELECT r.key_id, MAX(${month}) AS month FROM usage_records r WHERE r.key_id IS NOT NULL GROUP BY r.key_id)
    newest ON newest.key_id = r.key_id
  GROUP BY r.key_id, newest.month`;

/** Limits of single keys, what each has spent, and why it was refused last. */
export const keyLimits: Migration = {
  id: 16,
  name: "limits of keys",
  statements: [
    "ALTER TABLE api_keys ADD COLUMN expires_at {timestamp}",
    "ALTER TABLE api_keys ADD COLUMN monthly_budget_nano_usd {bigint} CHECK (monthly_budget_nano_usd >= 0)",
    "ALTER TABLE api_keys ADD COLUMN total_budget_nano_usd {bigint} CHECK (total_budget_nano_usd >= 0)",
    // A JSON array of model ids; NULL: all models.
    "ALTER TABLE api_keys ADD COLUMN allowed_models TEXT",
    "ALTER TABLE api_keys ADD COLUMN requests_per_minute {bigint} CHECK (requests_per_minute > 0)",
    "ALTER TABLE api_keys ADD COLUMN tokens_per_minute {bigint} CHECK (tokens_per_minute > 0)",
    // One row a key, so that settling a batch touches each key once: the newest month it was used in, and all of it.
    `CREATE TABLE key_spend (
      key_id {uuid} PRIMARY KEY,
      month TEXT NOT NULL,
      month_cost_nano_usd {bigint} NOT NULL,
      total_cost_nano_usd {bigint} NOT NULL,
      requests {bigint} NOT NULL,
      last_used_ms {bigint} NOT NULL
    )`,
    {
      sqlite: [spendSoFar("substr(r.created_at, 1, 7)")],
      postgres: [spendSoFar("to_char(r.created_at AT TIME ZONE 'UTC', 'YYYY-MM')")],
    },
    `CREATE TABLE key_refusals (
      key_id {uuid} PRIMARY KEY,
      refused_ms {bigint} NOT NULL,
      code TEXT NOT NULL,
      message TEXT NOT NULL
    )`,
  ],
};
