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

const listJson = async (messages: readonly unknown[]): Promise<string> =>
  `[${await inSteps(messages, (message) => JSON.stringify(message))}]`;

/** What one turn reads from and leaves in the conversation and the memory. Most turns touch neither. */
export class TurnRecord {
  /** Sees the streamed answer when someone wants to keep it. */
  readonly collector: AnswerCollector | null;
  recall: RecallState = "disabled";
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

  async access(): Promise<void> {
    const { userId, fields } = this.options;
    const { conversationId: id } = fields;
    if (id) this.boundTo = (await this.parts.conversations.access(userId, id)).backend;
  }

  /** Assembles history and recalls: JSON of the messages to send instead of the client's; null: those are all. */
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
    const told = memory.facts.inject(userId, messages, items);
    return told.some((message, at) => message !== messages[at]) ? listJson(told) : json;
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
