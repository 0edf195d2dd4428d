import type { Log } from "../../../kernel/log.ts";
import type { Conversations, StoredMessage } from "../../conversations/index.ts";
import { inject, type Memory, type RecallState } from "../../memory/index.ts";
import type { ChatFields } from "../request/fields.ts";
import type { Payload } from "../request/payload.ts";
import { AnswerCollector, messagesOf, toStored, userTurn } from "./messages.ts";

export interface RecordParts {
  conversations: Conversations;
  memory: Memory;
  log: Log;
}

export interface RecordOptions {
  userId: string;
  requestId: string;
  payload: Payload;
  fields: ChatFields;
  /** Messages are put before those of the request: the stored history. */
  withHistory: boolean;
  /** Stores the answer elsewhere, too. */
  keep?(answer: StoredMessage): Promise<void>;
}

/** What one turn reads from and leaves in the conversation and the memory. Most turns touch neither. */
export class TurnRecord {
  /** Sees the streamed answer when someone wants to keep it. */
  readonly collector: AnswerCollector | null;
  recall: RecallState = "disabled";
  /** JSON of the messages to send instead of the client's, when anything was added to them. */
  messagesJson: string | null = null;
  #userTurn: StoredMessage | null = null;
  readonly #remembers: boolean;

  constructor(
    readonly parts: RecordParts,
    readonly options: RecordOptions,
  ) {
    const { fields, keep } = options;
    this.#remembers = parts.memory.enabled && fields.memory;
    this.collector = fields.conversationId || this.#remembers || keep ? new AnswerCollector() : null;
  }

  /** Checks the conversation, assembles history and recalls; only where there is a collector. */
  async prepare(signal: AbortSignal): Promise<void> {
    const { conversations, memory } = this.parts;
    const { userId, payload, fields, withHistory } = this.options;
    const { conversationId } = fields;
    if (conversationId) await conversations.access(userId, conversationId);
    let messages = payload.value("messages") as unknown[];
    this.#userTurn = userTurn(messages);
    if (conversationId && withHistory) {
      const history = await conversations.history(conversationId);
      if (history.length > 0) {
        messages = [...history, ...messages];
        this.messagesJson = JSON.stringify(messages);
      }
    }
    if (!this.#remembers) return;
    const { state, items } = await memory.recall({ userId, query: this.#userTurn?.content ?? "", signal });
    this.recall = state;
    if (items.length > 0) this.messagesJson = JSON.stringify(inject(messages, items));
  }

  /** At send time: the user's turn is part of the conversation whatever becomes of the answer. */
  async sent(): Promise<void> {
    const { conversationId } = this.options.fields;
    if (conversationId && this.#userTurn)
      await this.parts.conversations.append(conversationId, [this.#userTurn]);
  }

  /** The whole answer of a request that did not stream. */
  async completedWith(body: Buffer): Promise<void> {
    const [message] = messagesOf(body);
    await this.#completed(message ? toStored({ role: "assistant", ...message }) : null);
  }

  async completed(): Promise<void> {
    if (this.collector) await this.#completed(this.collector.message());
  }

  async #completed(answer: StoredMessage | null): Promise<void> {
    if (!answer || (answer.content === "" && !answer.tool_calls)) return;
    const { conversations, memory, log } = this.parts;
    const { userId, requestId, fields, keep } = this.options;
    if (keep) await keep(answer);
    if (fields.conversationId) {
      // The answer is the client's already; a turn that cannot be stored must not take it away.
      await conversations.append(fields.conversationId, [answer]).catch((error) => {
        log.error("an answer could not be added to its conversation", { request_id: requestId, error });
      });
    }
    if (this.#remembers && this.#userTurn) {
      const messages = [this.#userTurn, answer].map(({ role, content }) => ({ role, content }));
      memory.writeback({ userId, messages, idempotencyKey: requestId });
    }
  }
}
