import type { Migration } from "../migrate.ts";

/**
 * The index of each backend, also of models on nodes, which have no configuration of their own. A row without a name
 * is the index of a removed backend: it is not given again.
 */
export const backendIndexes: Migration = {
  id: 31,
  name: "indexes of backends",
  statements: [
    `CREATE TABLE backend_indexes (
      position INTEGER PRIMARY KEY,
      name TEXT UNIQUE
    )`,
    `INSERT INTO backend_indexes (position, name)
     SELECT ROW_NUMBER() OVER (ORDER BY registered_at, name) - 1, name FROM backend_configs`,
  ],
};
