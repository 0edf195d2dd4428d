import type { Migration } from "../migrate.ts";

export const usage: Migration = {
  id: 6,
  name: "usage, rollups, tiers and video prices",
  statements: [
    // Rows outlive the keys and accounts that they name, so nothing here references another table.
    `CREATE TABLE usage_records (
      id {uuid} PRIMARY KEY,
      user_id {uuid} NOT NULL,
      key_id {uuid},
      project TEXT,
      api_key_id TEXT NOT NULL CHECK (length(api_key_id) <= 64),
      model TEXT NOT NULL CHECK (length(model) <= 128),
      backend TEXT NOT NULL CHECK (length(backend) <= 64),
      prompt_tokens {bigint} NOT NULL CHECK (prompt_tokens >= 0),
      completion_tokens {bigint} NOT NULL CHECK (completion_tokens >= 0),
      total_tokens {bigint} NOT NULL,
      cost {double} CHECK (cost >= 0),
      created_at {timestamp} NOT NULL,
      created_ms {bigint} NOT NULL,
      ref_id TEXT CHECK (length(ref_id) <= 64),
      points {bigint},
      account_type TEXT CHECK (account_type IN ('user', 'group')),
      estimated {boolean} NOT NULL
    )`,
    "CREATE INDEX usage_records_api_key ON usage_records (api_key_id)",
    "CREATE INDEX usage_records_model ON usage_records (model)",
    "CREATE INDEX usage_records_created ON usage_records (created_at)",
    // A person's rows are ordered by created_ms, so that no planner can take the index on created_at for it and
    // walk through everyone's newer rows to find theirs.
    "CREATE INDEX usage_records_user ON usage_records (user_id, created_ms)",
    "CREATE INDEX usage_records_project ON usage_records (user_id, project, created_ms) WHERE project IS NOT NULL",
    "CREATE INDEX usage_records_ref ON usage_records (ref_id, created_at) WHERE ref_id IS NOT NULL",
    // One row a user, UTC month and project; the project '' is the whole user.
    `CREATE TABLE usage_months (
      user_id {uuid} NOT NULL,
      month TEXT NOT NULL,
      project TEXT NOT NULL,
      requests {bigint} NOT NULL,
      tokens {bigint} NOT NULL,
      cost_nano_usd {bigint} NOT NULL,
      quota_tokens {bigint} NOT NULL,
      quota_cost_nano_usd {bigint} NOT NULL,
      PRIMARY KEY (user_id, month, project)
    )`,
    // What the usage query reads. References may be as many as requests, so they have a table of their own.
    `CREATE TABLE usage_days (
      day TEXT NOT NULL,
      model TEXT NOT NULL,
      backend TEXT NOT NULL,
      tagged {boolean} NOT NULL,
      requests {bigint} NOT NULL,
      prompt_tokens {bigint} NOT NULL,
      completion_tokens {bigint} NOT NULL,
      total_tokens {bigint} NOT NULL,
      cost_nano_usd {bigint} NOT NULL,
      PRIMARY KEY (day, model, backend, tagged)
    )`,
    `CREATE TABLE usage_ref_days (
      ref_id TEXT NOT NULL,
      day TEXT NOT NULL,
      model TEXT NOT NULL,
      backend TEXT NOT NULL,
      requests {bigint} NOT NULL,
      prompt_tokens {bigint} NOT NULL,
      completion_tokens {bigint} NOT NULL,
      total_tokens {bigint} NOT NULL,
      cost_nano_usd {bigint} NOT NULL,
      PRIMARY KEY (ref_id, day, model, backend)
    )`,
    "CREATE INDEX usage_ref_days_day ON usage_ref_days (day)",
    `CREATE TABLE billing_tiers (
      name TEXT PRIMARY KEY,
      position INTEGER NOT NULL,
      monthly_usd_quota {double},
      monthly_token_quota {bigint},
      rpm INTEGER NOT NULL
    )`,
    `INSERT INTO billing_tiers (name, position, monthly_usd_quota, monthly_token_quota, rpm) VALUES
      ('free', 1, 1.0, 100000, 10),
      ('pro', 2, 20.0, 5000000, 120),
      ('enterprise', 3, NULL, NULL, 1000)`,
    `CREATE TABLE video_pricing (
      model TEXT PRIMARY KEY,
      mode TEXT NOT NULL CHECK (mode IN ('per_call', 'per_second_resolution', 'per_frame')),
      base_price {double} NOT NULL,
      price_per_second {double} NOT NULL,
      price_per_frame {double} NOT NULL,
      resolution_coeff TEXT NOT NULL,
      currency TEXT NOT NULL,
      enabled {boolean} NOT NULL
    )`,
  ],
};
