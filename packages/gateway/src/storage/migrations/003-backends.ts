import type { Migration } from "../migrate.ts";

export const backends: Migration = {
  id: 3,
  name: "backends",
  statements: [
    `CREATE TABLE backend_configs (
      name TEXT PRIMARY KEY,
      type TEXT NOT NULL,
      url TEXT NOT NULL,
      api_key TEXT,
      models TEXT NOT NULL,
      capabilities TEXT,
      workflow TEXT,
      registered_at {timestamp} NOT NULL,
      updated_at {timestamp} NOT NULL
    )`,
  ],
};
