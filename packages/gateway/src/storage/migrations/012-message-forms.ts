import type { Migration } from "../migrate.ts";

/** What a later turn needs of a message besides its text; what a video job asked for in vain. */
export const messageForms: Migration = {
  id: 12,
  name: "forms of messages, warnings of video jobs",
  statements: [
    "ALTER TABLE conversation_messages ADD COLUMN parts TEXT",
    "ALTER TABLE conversation_messages ADD COLUMN tool_call_id TEXT",
    "ALTER TABLE conversation_messages ADD COLUMN incomplete TEXT",
    "ALTER TABLE video_jobs ADD COLUMN warnings TEXT",
  ],
};
