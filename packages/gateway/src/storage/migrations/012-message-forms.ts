import type { Migration } from "../migrate.ts";

/** What a later turn needs of a message besides its text. */
export const messageForms: Migration = {
  id: 12,
  name: "forms of messages",
  statements: [
    "ALTER TABLE conversation_messages ADD COLUMN parts TEXT",
    "ALTER TABLE conversation_messages ADD COLUMN tool_call_id TEXT",
    "ALTER TABLE conversation_messages ADD COLUMN incomplete TEXT",
  ],
};
