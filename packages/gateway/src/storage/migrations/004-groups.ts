import type { Migration } from "../migrate.ts";

export const groups: Migration = {
  id: 4,
  name: "groups",
  statements: [
    // Without an owner the group is the platform's: made with the admin token.
    `CREATE TABLE user_groups (
      id {uuid} PRIMARY KEY,
      name TEXT NOT NULL,
      description TEXT NOT NULL,
      owner_id {uuid} REFERENCES users (id),
      enforce_model_allowlist {boolean} NOT NULL,
      rpm_ceiling INTEGER,
      created_at {timestamp} NOT NULL
    )`,
    "CREATE INDEX user_groups_owner ON user_groups (owner_id)",
    `CREATE TABLE group_members (
      group_id {uuid} NOT NULL REFERENCES user_groups (id) ON DELETE CASCADE,
      user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      role TEXT NOT NULL CHECK (role IN ('admin', 'member')),
      cost_multiplier_micros {bigint} NOT NULL CHECK (cost_multiplier_micros > 0),
      is_active {boolean} NOT NULL,
      created_at {timestamp} NOT NULL,
      PRIMARY KEY (group_id, user_id)
    )`,
    "CREATE INDEX group_members_user ON group_members (user_id)",
    `CREATE TABLE group_invitations (
      id {uuid} PRIMARY KEY,
      group_id {uuid} NOT NULL REFERENCES user_groups (id) ON DELETE CASCADE,
      token_hash TEXT NOT NULL UNIQUE,
      role TEXT NOT NULL CHECK (role IN ('admin', 'member')),
      email TEXT,
      max_uses INTEGER NOT NULL,
      uses INTEGER NOT NULL,
      created_by {uuid} NOT NULL,
      created_at {timestamp} NOT NULL,
      expires_at {timestamp} NOT NULL,
      CHECK (uses <= max_uses)
    )`,
    "CREATE INDEX group_invitations_group ON group_invitations (group_id, expires_at)",
    // A model may be in both lists: the denial wins, and lifting it brings the permission back.
    `CREATE TABLE group_models (
      group_id {uuid} NOT NULL REFERENCES user_groups (id) ON DELETE CASCADE,
      rule TEXT NOT NULL CHECK (rule IN ('allow', 'deny')),
      model_id TEXT NOT NULL,
      PRIMARY KEY (group_id, rule, model_id)
    )`,
  ],
};
