import type { Migration } from "../migrate.ts";

export const agents: Migration = {
  id: 8,
  name: "agent nodes",
  statements: [
    `CREATE TABLE agents (
      id TEXT PRIMARY KEY,
      name TEXT NOT NULL,
      version TEXT NOT NULL,
      token_hash TEXT NOT NULL UNIQUE,
      host TEXT,
      epoch {bigint} NOT NULL DEFAULT 0,
      created_at {timestamp} NOT NULL,
      last_seen_at {timestamp}
    )`,
  ],
};
