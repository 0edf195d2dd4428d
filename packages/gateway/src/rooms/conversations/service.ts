import { type Clock, isoTime } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { Database } from "../../storage/contract.ts";
import { relativeAge } from "./relative-age.ts";
import { type ConversationRow, ConversationStore, type MessageRow } from "./store.ts";

const DEFAULT_TITLE = "New Conversation";
/** The most that is read back, for a person or as a model's history; any one message fits. */
const READ_BACK = { limit: 2_000, charsMax: 32 * 1024 * 1024 };

export interface StoredMessage {
  role: string;
  content: string;
  images?: unknown[];
  tool_calls?: unknown[];
}

const isUuid = (text: string) => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
const parseList = (json: string | null) => (json === null ? undefined : (JSON.parse(json) as unknown[]));

const toMessage = (row: MessageRow) => ({
  id: row.id,
  role: row.role,
  content: row.content,
  images: parseList(row.images),
  tool_calls: parseList(row.tool_calls),
  created_at: row.created_at,
});

export class Conversations {
  readonly #store: ConversationStore;
  constructor(readonly options: { db: Database; clock: Clock; ids: Ids }) {
    this.#store = new ConversationStore(options.db);
  }

  async list(userId: string) {
    const nowMs = this.options.clock.now();
    const rows = await this.#store.listOf(userId);
    return rows.map((row) => ({
      ...row,
      created_ago: relativeAge(row.created_at, nowMs),
      updated_ago: relativeAge(row.updated_at, nowMs),
    }));
  }

  async create(userId: string, title = DEFAULT_TITLE): Promise<ConversationRow> {
    const now = isoTime(this.options.clock.now());
    const row = { id: this.options.ids.uuid(), user_id: userId, title, created_at: now, updated_at: now };
    await this.#store.insert(row);
    return row;
  }

  async get(userId: string, id: string) {
    const conversation = await this.#owned(userId, id);
    const messages = await this.#store.messages(id, READ_BACK);
    return { ...conversation, messages: messages.map(toMessage) };
  }

  /** Renaming does not count as use: its place in the list stays. */
  async rename(userId: string, id: string, title: string): Promise<ConversationRow> {
    const conversation = await this.#owned(userId, id);
    await this.#store.rename(id, title);
    return { ...conversation, title };
  }

  /** Removes a message and everything after it, so that the turn can be repeated. */
  async rewind(userId: string, id: string, messageId: string): Promise<number> {
    await this.#owned(userId, id);
    const removed = isUuid(messageId) ? await this.#store.removeFrom(id, messageId) : 0;
    if (removed === 0)
      fail("not_found", "The conversation has no such message; conversations.get shows them");
    return removed;
  }

  async remove(userId: string, id: string): Promise<void> {
    await this.#owned(userId, id);
    await this.#store.remove(id);
  }

  /** The conversation, for its owner; the two cases are distinguished for REST, where each has its own code. */
  async access(userId: string, id: string): Promise<ConversationRow> {
    const conversation = isUuid(id) ? await this.#store.find(id) : null;
    if (!conversation) fail("conversation_not_found", `Conversation not found: ${id.slice(0, 64)}`);
    if (conversation.user_id !== userId)
      fail("conversation_forbidden", "This conversation belongs to another user");
    return conversation;
  }

  /** Messages so far, oldest first, as they are sent to a model. The caller has checked `access`. */
  async history(id: string): Promise<StoredMessage[]> {
    const rows = await this.#store.messages(id, READ_BACK);
    return rows.map((row) => {
      const { role, content, images, tool_calls } = toMessage(row);
      return { role, content, ...(images && { images }), ...(tool_calls && { tool_calls }) };
    });
  }

  /** Adds messages to the end; quietly does nothing when the conversation was deleted meanwhile. */
  async append(id: string, messages: readonly StoredMessage[]): Promise<void> {
    if (messages.length === 0) return;
    const { ids, clock } = this.options;
    const created_at = isoTime(clock.now());
    await this.#store.append(
      id,
      messages.map(({ role, content, images, tool_calls }) => ({
        id: ids.uuid(),
        role,
        // A model may write anything, but Postgres rejects NUL in a text.
        content: content.replaceAll("\u0000", ""),
        images: images ? JSON.stringify(images) : null,
        tool_calls: tool_calls ? JSON.stringify(tool_calls) : null,
        created_at,
      })),
    );
  }

  /** Over RPC another user's conversation looks like a missing one. */
  async #owned(userId: string, id: string): Promise<ConversationRow> {
    const conversation = isUuid(id) ? await this.#store.find(id) : null;
    if (conversation?.user_id !== userId)
      fail("conversation_not_found", "Conversation not found; conversations.list shows yours");
    return conversation;
  }
}
