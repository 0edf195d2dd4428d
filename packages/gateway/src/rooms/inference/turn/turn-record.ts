import type { BoundedMap } from "../../../kernel/bounded.ts";
import { isObject } from "../../../kernel/json.ts";
import type { Log } from "../../../kernel/log.ts";
import type { Conversations, StoredMessage } from "../../conversations/index.ts";
import type { Memory, RecallState } from "../../memory/index.ts";
import type { Metering } from "../../metering/index.ts";
import type { Route } from "../../routing/index.ts";
import type { AnswerBody } from "../call/answer-body.ts";
import type { ChatFields } from "../request/fields.ts";
import type { Payload } from "../request/payload.ts";
import { completeCalls } from "../stream/tool-deltas.ts";
import { continueWith } from "./history.ts";
import { AnswerCollector, messagesOf, toStored, userTurn } from "./messages.ts";

export interface RecordParts {
  conversations: Conversations;
  memory: Memory;
  metering: Metering;
  log: Log;
  /** Of answers with calls, by conversation and call, for as long as this process has them. */
  thoughts: BoundedMap<string, string>;
}

export interface RecordOptions {
  userId: string;
  requestId: string;
  payload: Payload;
  fields: ChatFields;
  /** The stored history goes before the messages of the request; otherwise those are all that is sent. */
  isConversation: boolean;
  /** It may pass as it is: nothing is added to it, and nothing is kept of it. */
  isNative: boolean;
}

/** Of a conversation whose client sends all of it: where what is new is looked for. */
const COMPARED_MESSAGES_MAX = 200;
const REASON_CHARS_MAX = 4_096;
/** Of one answer; longer ones are not kept. */
const THOUGHTS_CHARS_MAX = 64 * 1024;

/** What one turn reads from and leaves in the conversation and the memory. Most turns touch neither. */
export class TurnRecord {
  /** Sees the streamed answer when someone wants to keep it. */
  readonly collector: AnswerCollector | null;
  recall: RecallState = "disabled";
  /** JSON of the messages to send instead of the client's, when anything was added to them. */
  messagesJson: string | null = null;
  #userTurn: StoredMessage | null = null;
  /** The conversation's backend; null: it has none yet. Absent: there is no conversation. */
  boundTo?: string | null;
  #added: StoredMessage[] = [];

  constructor(
    readonly parts: RecordParts,
    readonly options: RecordOptions,
  ) {
    this.collector = this.needsPreparation ? new AnswerCollector() : null;
  }

  /** Whether anything is read, or written, before the request is sent. */
  get needsPreparation(): boolean {
    const { fields, isNative } = this.options;
    return !isNative && (Boolean(fields.conversationId) || this.parts.memory.enabled);
  }

  /** Checks the conversation, assembles history and recalls. */
  async prepare(signal: AbortSignal): Promise<void> {
    const { conversations, memory } = this.parts;
    const { userId, payload, fields, isConversation } = this.options;
    const { conversationId } = fields;
    if (conversationId) this.boundTo = (await conversations.access(userId, conversationId)).backend;
    let messages = payload.value("messages") as unknown[];
    this.#userTurn = userTurn(messages);
    if (conversationId) {
      const stored = await conversations.history(
        conversationId,
        isConversation ? undefined : COMPARED_MESSAGES_MAX,
      );
      const sent = messages as Record<string, unknown>[];
      const { added, sequence } = continueWith(stored, sent, { sentIsWhole: !isConversation });
      this.#added = added;
      if (isConversation) {
        messages = sequence.map((message) => this.#withThoughts(message));
        this.messagesJson = JSON.stringify(messages);
      }
    }
    if (!memory.enabled || !fields.memory) return;
    const { state, items } = await memory.recall({ userId, query: this.#userTurn?.content ?? "", signal });
    this.recall = state;
    const told = memory.facts.inject(userId, messages, items);
    if (told.some((message, at) => message !== messages[at])) this.messagesJson = JSON.stringify(told);
  }

  /** DeepSeek refuses a call without the thoughts that led to it; the history does not have them. */
  #withThoughts(message: Record<string, unknown>): Record<string, unknown> {
    const reasoning_content = this.parts.thoughts.get(this.#placeOf(message) ?? "");
    return reasoning_content ? { ...message, reasoning_content } : message;
  }

  /** Of an answer with calls, in its conversation. */
  #placeOf({ tool_calls: calls }: { tool_calls?: unknown }): string | null {
    const first = Array.isArray(calls) ? calls[0] : null;
    return isObject(first) ? `${this.options.fields.conversationId} ${first.id}` : null;
  }

  /** At send time: what the client says is part of the conversation whatever becomes of the answer. */
  async sent(route: Route): Promise<void> {
    const { conversationId } = this.options.fields;
    if (!conversationId) return;
    await this.parts.conversations.append(conversationId, this.#added);
    await this.#bind(conversationId, route);
  }

  /** The conversation stays with its backend, or with the one that served it instead. */
  async #bind(conversationId: string, { rebinds, name }: Route): Promise<void> {
    if (!rebinds || this.boundTo === name) return;
    await this.parts.conversations.bind(conversationId, { from: this.boundTo ?? null, to: name });
    this.boundTo = name;
  }

  async completedWith(body: AnswerBody, route: Route): Promise<void> {
    const [message] = messagesOf(body);
    // In place: what is told is what is kept.
    if (message) completeCalls(message);
    await this.#completed(message ? toStored({ ...message, role: "assistant" }) : null, route);
  }

  async completed(route: Route): Promise<void> {
    if (this.collector) await this.#completed(this.collector.message(), route);
  }

  /** The answer broke off: what there is of it is kept with the reason, but not a call that may be cut in two. */
  async interrupted(reason: string): Promise<void> {
    const { fields, isConversation } = this.options;
    const content = this.collector?.message().content ?? "";
    if (!isConversation || !fields.conversationId || content === "") return;
    this.parts.metering.written();
    await this.#append({ role: "assistant", content, incomplete: reason.slice(0, REASON_CHARS_MAX) });
  }

  async #append(answer: StoredMessage, servedBy?: Route): Promise<void> {
    const { conversationId } = this.options.fields;
    if (!conversationId) return;
    try {
      await this.parts.conversations.append(conversationId, [answer]);
      if (servedBy) await this.#bind(conversationId, servedBy);
    } catch (error) {
      // The answer is the client's already; a turn that cannot be stored must not take it away.
      const request_id = this.options.requestId;
      this.parts.log.error("an answer could not be added to its conversation", { request_id, error });
    }
  }

  async #completed(answer: StoredMessage | null, route: Route): Promise<void> {
    if (!answer || (answer.content === "" && !answer.tool_calls)) return;
    const { userId, requestId } = this.options;
    this.parts.metering.written();
    const place = this.#placeOf(answer);
    const thoughts = this.collector?.reasoning ?? "";
    if (place && thoughts && thoughts.length <= THOUGHTS_CHARS_MAX) this.parts.thoughts.set(place, thoughts);
    await this.#append(answer, route);
    if (this.parts.memory.enabled && this.#userTurn) {
      const messages = [this.#userTurn, answer].map(({ role, content }) => ({ role, content }));
      this.parts.memory.writeback({ userId, messages, idempotencyKey: requestId });
    }
  }
}
