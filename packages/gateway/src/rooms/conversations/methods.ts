import { z } from "zod";
import { fail } from "../../kernel/errors.ts";
import { defineMethod, Timestamp } from "../../kernel/method.ts";

/** Any text, because an unknown conversation is not found rather than invalid; in the case of the stored ids. */
export const ConversationId = z.string().max(64).toLowerCase();
const Title = z.string().trim().min(1).max(200);
const Conversation = z.object({
  id: z.uuid(),
  title: z.string(),
  owner: z.uuid().describe("Id of the account that it belongs to"),
  created_at: Timestamp,
  updated_at: Timestamp,
});
const owned = <T extends { user_id: string }>({ user_id, ...conversation }: T) => ({
  ...conversation,
  owner: user_id,
});
const Message = z.object({
  id: z.uuid(),
  role: z.string(),
  content: z.string(),
  images: z.array(z.unknown()).optional(),
  tool_calls: z.array(z.unknown()).optional(),
  tool_call_id: z.string().optional().describe("The call that a tool's result is for"),
  incomplete: z
    .string()
    .optional()
    .describe("Why an answer is not whole: what the upstream said, or `stopped`"),
  created_at: Timestamp,
});

/** `id` is the older name; `conversation_id` wins if both are given. */
const ById = z.object({
  conversation_id: ConversationId.optional(),
  id: ConversationId.optional().describe("Older name of conversation_id, which wins when both are given"),
});
const idOf = ({ conversation_id, id }: z.output<typeof ById>): string =>
  conversation_id ??
  id ??
  fail("invalid_params", "Invalid params: `conversation_id` is required", {
    data: { fields: ["conversation_id"] },
  });

export const list = defineMethod({
  name: "conversations.list",
  summary: "Your conversations, the most recently used first",
  auth: "jwt",
  result: z.array(
    Conversation.extend({
      created_ago: z.string(),
      updated_ago: z.string().describe('e.g. "5 minutes ago"'),
      message_count: z.int(),
    }),
  ),
  handler: async ({ actor, rooms }) => (await rooms.conversations.list(actor.userId)).map(owned),
});

export const create = defineMethod({
  name: "conversations.create",
  summary: "Start a conversation",
  auth: "jwt",
  audit: false,
  params: z.object({ title: Title.optional() }),
  result: Conversation.extend({ messages: z.array(Message) }),
  handler: async ({ params, actor, rooms }) => ({
    ...owned(await rooms.conversations.create(actor.userId, params.title)),
    messages: [],
  }),
});

export const get = defineMethod({
  name: "conversations.get",
  summary: "One of your conversations with its messages",
  auth: "jwt",
  params: ById,
  result: Conversation.extend({ messages: z.array(Message) }),
  handler: async ({ params, actor, rooms }) =>
    owned(await rooms.conversations.get(actor.userId, idOf(params))),
});

export const rename = defineMethod({
  name: "conversations.rename",
  summary: "Give one of your conversations another title",
  auth: "jwt",
  audit: false,
  params: z.object({ conversation_id: ConversationId, title: Title }),
  result: Conversation,
  handler: async ({ params, actor, rooms }) =>
    owned(await rooms.conversations.rename(actor.userId, params.conversation_id, params.title)),
});

export const rewind = defineMethod({
  name: "conversations.rewind",
  summary: "Remove a message and all that follow it, to say it differently or to be answered again",
  auth: "jwt",
  audit: false,
  params: z.object({ conversation_id: ConversationId, message_id: z.string().max(64).toLowerCase() }),
  result: z.object({ removed: z.int().describe("Messages that were removed") }),
  handler: async ({ params, actor, rooms }) => ({
    removed: await rooms.conversations.rewind(actor.userId, params.conversation_id, params.message_id),
  }),
});

export const remove = defineMethod({
  name: "conversations.delete",
  summary: "Delete one of your conversations with its messages",
  auth: "jwt",
  params: ById,
  handler: ({ params, actor, rooms }) => rooms.conversations.remove(actor.userId, idOf(params)),
});
