import type { Migration } from "../migrate.ts";

/** Accounts that are bound to a person at the sign-in provider. */
export const signInProvider: Migration = {
  id: 22,
  name: "sign-in provider",
  statements: [
    `CREATE TABLE identities (
      id {uuid} PRIMARY KEY,
      issuer TEXT NOT NULL,
      subject TEXT NOT NULL,
      user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      email TEXT,
      created_at {timestamp} NOT NULL,
      last_used_at {timestamp} NOT NULL,
      UNIQUE (issuer, subject)
    )`,
    "CREATE INDEX identities_user ON identities (user_id)",
    // Each attempt to sign in is good once; its row is kept until the attempt would expire anyway.
    `CREATE TABLE used_sign_ins (
      id TEXT PRIMARY KEY,
      expires_at {timestamp} NOT NULL
    )`,
    "CREATE INDEX used_sign_ins_expiry ON used_sign_ins (expires_at)",
    // Memberships that end when the provider no longer names the group.
    "ALTER TABLE group_members ADD COLUMN from_provider {boolean} NOT NULL DEFAULT FALSE",
  ],
};
