import type { Migration } from "../migrate.ts";

/** Names with several targets, and how many calls a backend takes at once. */
export const modelRoutes: Migration = {
  id: 13,
  name: "model routes",
  statements: [
    `CREATE TABLE model_routes (
      name TEXT PRIMARY KEY,
      targets TEXT NOT NULL,
      begin_within_ms INTEGER,
      updated_at {timestamp} NOT NULL
    )`,
    "ALTER TABLE backend_configs ADD COLUMN concurrency INTEGER",
  ],
};
