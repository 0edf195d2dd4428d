import type { Migration } from "../migrate.ts";

export const leases: Migration = {
  id: 9,
  name: "leases, and indexes for what expires",
  statements: [
    // Work that one instance at a time does, and until when it is that instance's.
    `CREATE TABLE leases (
      name TEXT PRIMARY KEY,
      owner TEXT NOT NULL,
      held_until {timestamp} NOT NULL
    )`,
    "CREATE INDEX refresh_tokens_expiry ON refresh_tokens (expires_at)",
    "CREATE INDEX group_invitations_expiry ON group_invitations (expires_at)",
    "CREATE INDEX video_jobs_payload ON video_jobs (created_at) WHERE request <> '{}'",
  ],
};
