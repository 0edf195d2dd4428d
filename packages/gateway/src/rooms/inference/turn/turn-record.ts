import type { BoundedMap } from "../../../kernel/bounded.ts";
import { isObject } from "../../../kernel/json.ts";
import type { Log } from "../../../kernel/log.ts";
import { inSteps, nextTurn } from "../../../kernel/turns.ts";
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
  metering: Pick<Metering, "admit" | "written">;
  log: Log;
  /** Reasoning of answers with calls, by conversation and call; kept in this process only. */
  thoughts: BoundedMap<string, string>;
}

export interface RecordOptions {
  userId: string;
  requestId: string;
  payload: Payload;
  fields: ChatFields;
  /** The stored history goes before the request's messages; otherwise only those are sent. */
  isConversation: boolean;
  /** It may pass verbatim: nothing is added to it, and nothing is stored. */
  isNative: boolean;
}

/** How far back to compare when the client sends the whole conversation. */
const COMPARED_MESSAGES_MAX = 200;
const REASON_CHARS_MAX = 4_096;
/** Longer reasoning is not kept. */
const THOUGHTS_CHARS_MAX = 64 * 1024;

const listJson = async (messages: readonly unknown[]): Promise<string> =>
  `[${await inSteps(messages, (message) => JSON.stringify(message))}]`;

/** What one turn reads from and writes to the conversation and the memory. Most turns use neither. */
export class TurnRecord {
  /** Collects a streamed answer that has to be stored. */
  readonly collector: AnswerCollector | null;
  recall: RecallState = "disabled";
  #userTurn: StoredMessage | null = null;
  /** The conversation's backend; null: it has none yet; absent: there is no conversation. */
  boundTo?: string | null;
  #added: StoredMessage[] = [];

  constructor(
    readonly parts: RecordParts,
    readonly options: RecordOptions,
  ) {
    this.collector = this.needsPreparation ? new AnswerCollector() : null;
  }

  /** Whether storage is read or written before the request is sent. */
  get needsPreparation(): boolean {
    const { fields, isNative } = this.options;
    return !isNative && (Boolean(fields.conversationId) || this.parts.memory.enabled);
  }

  async access(): Promise<void> {
    const { userId, fields } = this.options;
    const { conversationId: id } = fields;
    if (id) this.boundTo = (await this.parts.conversations.access(userId, id)).backend;
  }

  /** Adds history and recalled facts: JSON of the messages to send; null: send the client's own. */
  async prepare(signal: AbortSignal): Promise<string | null> {
    const { conversations, memory } = this.parts;
    const { userId, payload, fields, isConversation } = this.options;
    const { conversationId } = fields;
    let json: string | null = null;
    let messages = payload.value("messages") as unknown[];
    this.#userTurn = userTurn(messages);
    if (conversationId) {
      const stored = await conversations.history(
        conversationId,
        isConversation ? undefined : COMPARED_MESSAGES_MAX,
      );
      await nextTurn();
      const sent = messages as Record<string, unknown>[];
      const { added, sequence } = continueWith(stored, sent, { sentIsWhole: !isConversation });
      this.#added = added;
      if (isConversation) {
        messages = sequence.map((message) => this.#withThoughts(message));
        json = await listJson(messages);
      }
    }
    if (!memory.enabled || !fields.memory) return json;
    const { state, items } = await memory.recall({ userId, query: this.#userTurn?.content ?? "", signal });
    this.recall = state;
    const withFacts = memory.facts.inject(userId, messages, items);
    return withFacts.some((message, at) => message !== messages[at]) ? listJson(withFacts) : json;
  }

  /** DeepSeek refuses a call without the reasoning that led to it, which the history does not store. */
  #withThoughts(message: Record<string, unknown>): Record<string, unknown> {
    const reasoning_content = this.parts.thoughts.get(this.#placeOf(message) ?? "");
    return reasoning_content ? { ...message, reasoning_content } : message;
  }

  /** The key under which the reasoning of an answer with calls is kept. */
  #placeOf({ tool_calls: calls }: { tool_calls?: unknown }): string | null {
    const first = Array.isArray(calls) ? calls[0] : null;
    return isObject(first) ? `${this.options.fields.conversationId} ${first.id}` : null;
  }

  /** Stores the client's messages at send time, whatever becomes of the answer. */
  async sent(route: Route): Promise<void> {
    const { conversationId } = this.options.fields;
    if (!conversationId) return;
    await this.parts.conversations.append(conversationId, this.#added);
    await this.#bind(conversationId, route);
  }

  /** Pins the conversation to the backend that served it. */
  async #bind(conversationId: string, { rebinds, name }: Route): Promise<void> {
    if (!rebinds || this.boundTo === name) return;
    await this.parts.conversations.bind(conversationId, { from: this.boundTo ?? null, to: name });
    this.boundTo = name;
  }

  async completedWith(body: AnswerBody, route: Route): Promise<void> {
    const [message] = messagesOf(body);
    // In place, so that the client gets what is stored.
    if (message) completeCalls(message);
    await this.#completed(message ? toStored({ ...message, role: "assistant" }) : null, route);
  }

  async completed(route: Route): Promise<void> {
    if (this.collector) await this.#completed(this.collector.message(), route);
  }

  /** Stores a partial answer and why it broke off, without calls, which may be truncated. */
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
      // The client already has the answer: failing to store it must not fail the request.
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
