import type { Migration } from "../migrate.ts";

/** Prices that administrators set may be by other units than the token. Prompts are kept of the keys they name. */
export const pricesAndCaptures: Migration = {
  id: 23,
  name: "unit prices and captured prompts",
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
  ],
};
