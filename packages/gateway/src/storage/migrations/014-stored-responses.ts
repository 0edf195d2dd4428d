import type { Migration } from "../migrate.ts";

/** Answers of the Responses API that a later request may go on from, each with what was asked for it. */
export const storedResponses: Migration = {
  id: 14,
  name: "stored responses",
  statements: [
    `CREATE TABLE stored_responses (
      id {uuid} PRIMARY KEY,
      user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      previous_id {uuid},
      conversation_id {uuid} REFERENCES conversations (id) ON DELETE CASCADE,
      messages TEXT NOT NULL,
      created_at {timestamp} NOT NULL
    )`,
    "CREATE INDEX stored_responses_user ON stored_responses (user_id, id)",
    "CREATE INDEX stored_responses_age ON stored_responses (created_at)",
    "CREATE INDEX stored_responses_conversation ON stored_responses (conversation_id)",
  ],
};
