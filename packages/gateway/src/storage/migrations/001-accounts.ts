import type { Migration } from "../migrate.ts";

export const accounts: Migration = {
  id: 1,
  name: "accounts, keys and providers",
  statements: [
    `CREATE TABLE users (
      id {uuid} PRIMARY KEY,
      email TEXT NOT NULL UNIQUE,
      name TEXT NOT NULL,
      password_hash TEXT NOT NULL,
      is_admin {boolean} NOT NULL,
      tier TEXT NOT NULL DEFAULT 'free',
      created_at {timestamp} NOT NULL
    )`,
    `CREATE TABLE refresh_tokens (
      token_hash TEXT PRIMARY KEY,
      family_id {uuid} NOT NULL,
      user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      created_at {timestamp} NOT NULL,
      expires_at {timestamp} NOT NULL,
      used_at {timestamp}
    )`,
    "CREATE INDEX refresh_tokens_family ON refresh_tokens (family_id)",
    "CREATE INDEX refresh_tokens_user ON refresh_tokens (user_id, expires_at)",
    `CREATE TABLE api_keys (
      id {uuid} PRIMARY KEY,
      user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      group_id {uuid},
      name TEXT NOT NULL,
      project TEXT NOT NULL,
      key_hash TEXT NOT NULL UNIQUE,
      key_prefix TEXT NOT NULL,
      active {boolean} NOT NULL,
      created_at {timestamp} NOT NULL,
      revoked_at {timestamp}
    )`,
    "CREATE INDEX api_keys_user ON api_keys (user_id, created_at)",
    "CREATE INDEX api_keys_group ON api_keys (group_id)",
    `CREATE TABLE providers (
      id TEXT PRIMARY KEY,
      name TEXT NOT NULL,
      description TEXT NOT NULL,
      website_domain TEXT NOT NULL,
      created_at {timestamp} NOT NULL
    )`,
  ],
};
