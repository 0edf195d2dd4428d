import { isoTime } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import { isUuid } from "../../kernel/ids.ts";
import { isObject } from "../../kernel/json.ts";
import { inSteps } from "../../kernel/turns.ts";
import type { Needs } from "../foundation.ts";
import { type ConversationRow, ConversationStore, type MessageRow } from "./store.ts";

const DEFAULT_TITLE = "New Conversation";
/** The most that is read back, for a person or as a model's history; fits into one turn of the event loop. */
const READ_BACK = { limit: 2_000, bytesMax: 5 * 1024 * 1024 };

export interface StoredMessage {
  role: string;
  content: string;
  /** The original content, if it was not a plain text. */
  parts?: unknown[];
  images?: unknown[];
  tool_calls?: unknown[];
  tool_call_id?: string;
  incomplete?: string;
}

const parseList = (json: string | null) => (json === null ? undefined : (JSON.parse(json) as unknown[]));

const toMessage = (row: MessageRow): StoredMessage => ({
  role: row.role,
  content: row.content,
  parts: parseList(row.parts),
  images: parseList(row.images),
  tool_calls: parseList(row.tool_calls),
  tool_call_id: row.tool_call_id ?? undefined,
  incomplete: row.incomplete ?? undefined,
});

/** For display: text, and images in the form in which they were sent. */
function toView(row: MessageRow) {
  const { parts = [], images: own = [], ...message } = toMessage(row);
  const inParts = parts
    .filter(isObject)
    .flatMap(({ image_url }) => (image_url === undefined ? [] : [image_url]));
  const images = [...own, ...inParts];
  return { id: row.id, ...message, ...(images.length > 0 && { images }), created_at: row.created_at };
}

const jsonOrNull = (list: unknown[] | undefined) => (list ? JSON.stringify(list) : null);

export class Conversations {
  readonly #store: ConversationStore;
  constructor(readonly options: Needs<"db" | "clock" | "ids">) {
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
    const row = {
      id: this.options.ids.uuid(),
      user_id: userId,
      // The title may be the beginning of a prompt, and Postgres rejects NUL.
      title: title.replaceAll("\u0000", ""),
      ...{ created_at: now, updated_at: now, backend: null },
    };
    await this.#store.insert(row);
    return row;
  }

  async get(userId: string, id: string) {
    const conversation = await this.#owned(userId, id);
    const messages = await this.#store.messages(id, READ_BACK);
    return { ...conversation, messages: await inSteps(messages, toView) };
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

  async history(id: string, limit = READ_BACK.limit): Promise<StoredMessage[]> {
    return inSteps(await this.#store.messages(id, { ...READ_BACK, limit }), toMessage);
  }

  /** Pins the conversation to this backend, unless another turn has changed the pin meanwhile. */
  bind(id: string, move: { from: string | null; to: string }): Promise<void> {
    return this.#store.bind(id, move);
  }

  /** Adds messages to the end; quietly does nothing when the conversation was deleted meanwhile. */
  async append(id: string, messages: readonly StoredMessage[]): Promise<void> {
    if (messages.length === 0) return;
    const { ids, clock } = this.options;
    const created_at = isoTime(clock.now());
    await this.#store.append(
      id,
      // Older ones would never be read back.
      messages
        .slice(-READ_BACK.limit)
        .map(({ role, content, parts, images, tool_calls, tool_call_id, incomplete }) => ({
          id: ids.uuid(),
          role,
          // A model may write NUL, which Postgres rejects.
          content: content.replaceAll("\u0000", ""),
          images: jsonOrNull(images),
          tool_calls: jsonOrNull(tool_calls),
          parts: jsonOrNull(parts),
          tool_call_id: tool_call_id?.replaceAll("\u0000", "") ?? null,
          incomplete: incomplete?.replaceAll("\u0000", "") ?? null,
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

const UNITS: readonly [string, number][] = [
  ["year", 365 * 86_400],
  ["month", 30 * 86_400],
  ["week", 7 * 86_400],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

/** "just now", "5 minutes ago", "2 days ago". */
function relativeAge(timestamp: string, nowMs: number): string {
  const seconds = Math.floor((nowMs - Date.parse(timestamp)) / 1000);
  for (const [unit, unitSeconds] of UNITS) {
    const count = Math.floor(seconds / unitSeconds);
    if (count >= 1) return `${count} ${unit}${count === 1 ? "" : "s"} ago`;
  }
  return "just now";
}
