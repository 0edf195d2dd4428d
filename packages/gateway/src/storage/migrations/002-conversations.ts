import type { Migration } from "../migrate.ts";

export const conversations: Migration = {
  id: 2,
  name: "conversations",
  statements: [
    `CREATE TABLE conversations (
      id {uuid} PRIMARY KEY,
      user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      title TEXT NOT NULL,
      created_at {timestamp} NOT NULL,
      updated_at {timestamp} NOT NULL
    )`,
    "CREATE INDEX conversations_user ON conversations (user_id, updated_at)",
    `CREATE TABLE conversation_messages (
      id {uuid} PRIMARY KEY,
      conversation_id {uuid} NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
      position {bigint} NOT NULL,
      role TEXT NOT NULL,
      content TEXT NOT NULL,
      images TEXT,
      tool_calls TEXT,
      created_at {timestamp} NOT NULL,
      UNIQUE (conversation_id, position)
    )`,
  ],
};
