import type { Migration } from "../migrate.ts";

/**
 * What a user has is found and counted without reading it. Ids are in the order of time, so the age needs no index,
 * and most responses are in no conversation.
 */
export const responseIndexes: Migration = {
  id: 28,
  name: "indexes of stored responses",
  statements: [],
  indexes: {
    create: {
      stored_responses_owned: "stored_responses (user_id, id, last_id, turns)",
      stored_responses_joined: "stored_responses (conversation_id) WHERE conversation_id IS NOT NULL",
    },
    drop: ["stored_responses_user", "stored_responses_age", "stored_responses_conversation"],
  },
};
