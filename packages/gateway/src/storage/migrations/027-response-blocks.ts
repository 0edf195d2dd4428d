import type { Migration } from "../migrate.ts";

/**
 * Stored responses can be given back, so they are kept as they were sent and answered; those of a user that were
 * answered together are one row, because a row for each cost more than the answer. `turns` is 0 for what was stored
 * before, as chat messages.
 */
export const responseBlocks: Migration = {
  id: 27,
  name: "stored responses in blocks",
  statements: [
    "ALTER TABLE stored_responses RENAME COLUMN messages TO content",
    "ALTER TABLE stored_responses ADD COLUMN last_id {uuid}",
    "ALTER TABLE stored_responses ADD COLUMN turns INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE stored_responses ADD COLUMN repeated TEXT",
    "UPDATE stored_responses SET last_id = id",
  ],
};
