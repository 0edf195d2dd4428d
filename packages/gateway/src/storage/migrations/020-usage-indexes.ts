import type { Migration } from "../migrate.ts";

/**
 * Two indexes for usage rows instead of five. Rows arrive in the order of time, so an index that begins with the time
 * grows at its end; one that begins with the key or the user changes another page with almost each row. A person's
 * rows need that, once.
 */
export const usageIndexes: Migration = {
  id: 20,
  name: "fewer indexes of usage rows",
  statements: [],
  indexes: {
    create: {
      usage_records_time: "usage_records (created_at, api_key_id, model)",
      usage_records_person: "usage_records (user_id, created_ms, project)",
    },
    drop: [
      "usage_records_api_key",
      "usage_records_model",
      "usage_records_created",
      "usage_records_user",
      "usage_records_project",
    ],
  },
};
