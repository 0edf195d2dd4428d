import type { Migration } from "../migrate.ts";

/**
 * Records lie together in blocks, as one text: a row for each cost more than everything else about it. Those that
 * came in the same quarter of a second, which is what the first 11 characters of an id say, become one.
 */
export const requestBlocks: Migration = {
  id: 26,
  name: "request records in blocks",
  statements: [
    `CREATE TABLE request_blocks (
      first_id {uuid} PRIMARY KEY,
      requests INTEGER NOT NULL,
      records TEXT NOT NULL
    )`,
    `INSERT INTO request_blocks (first_id, requests, records)
      SELECT CAST(MIN(CAST(id AS TEXT)) AS {uuid}), COUNT(*),
        '[' || STRING_AGG('["' || CAST(id AS TEXT) || '","' || CAST(asker_id AS TEXT) || '","' ||
          CAST(facet_id AS TEXT) || '",' || SUBSTR(facts, 2), ',') || ']'
      FROM request_records GROUP BY SUBSTR(CAST(id AS TEXT), 1, 11)`,
    "DROP TABLE request_records",
  ],
};
