import type { Migration } from "../migrate.ts";

/**
 * Records are written before they are counted in the sums, by which lists find them. Until then a row of this table says
 * where they lie; rows of a process that crashed stay.
 */
export const requestMarks: Migration = {
  id: 25,
  name: "request marks",
  statements: [
    `CREATE TABLE request_marks (
      writer_id {uuid} NOT NULL,
      from_ms {bigint} NOT NULL,
      below_ms {bigint} NOT NULL,
      PRIMARY KEY (writer_id, from_ms)
    )`,
  ],
};
