import type { Migration } from "../migrate.ts";

/** Accounts that administrators manage, sessions that people see, links that let someone in once. */
export const people: Migration = {
  id: 15,
  name: "people, sessions and links",
  statements: [
    "ALTER TABLE users ADD COLUMN disabled_at {timestamp}",
    "ALTER TABLE refresh_tokens ADD COLUMN ip TEXT",
    "ALTER TABLE refresh_tokens ADD COLUMN user_agent TEXT",
    // Kept while an access token of the session could still be shown.
    `CREATE TABLE ended_sessions (
      family_id {uuid} PRIMARY KEY,
      user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      ended_at {timestamp} NOT NULL
    )`,
    "CREATE INDEX ended_sessions_user ON ended_sessions (user_id, ended_at)",
    // With a user: that account's password can be set. Without: an account can be made.
    `CREATE TABLE account_links (
      id {uuid} PRIMARY KEY,
      token_hash TEXT NOT NULL UNIQUE,
      user_id {uuid} REFERENCES users (id) ON DELETE CASCADE,
      email TEXT,
      tier TEXT,
      created_by {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      created_at {timestamp} NOT NULL,
      expires_at {timestamp} NOT NULL
    )`,
    "CREATE INDEX account_links_expiry ON account_links (expires_at)",
    "ALTER TABLE backend_configs ADD COLUMN enabled {boolean} NOT NULL DEFAULT TRUE",
    `CREATE TABLE model_prices (
      model TEXT PRIMARY KEY CHECK (length(model) <= 256),
      input_usd {double} NOT NULL CHECK (input_usd >= 0),
      output_usd {double} NOT NULL CHECK (output_usd >= 0),
      updated_at {timestamp} NOT NULL
    )`,
  ],
};
