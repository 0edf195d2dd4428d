import { type Clock, isoTime } from "../../../kernel/clock.ts";
import { fail } from "../../../kernel/errors.ts";
import type { Log } from "../../../kernel/log.ts";
import type { Database } from "../../../storage/contract.ts";
import type { Conversations, StoredMessage } from "../../conversations/index.ts";
import { textOf, toStored } from "../turn/messages.ts";
import { type ResponseRow, ResponseStore } from "./store.ts";
import { ResponseWriter, WAIT_MS_MAX } from "./writer.ts";

const KEPT_MS = 30 * 86_400_000;
/** A larger turn is answered with `store: false`. */
const TURN_CHARS_MAX = 256 * 1024;
/** What one request may go on from. It is read before anything is charged for it, so it must not be much. */
const CHAIN = { turnsMax: 1_000, charsMax: 8 * 1024 * 1024 };
const ONE_TURN = { turnsMax: 1, charsMax: 0 };
const TITLE_CHARS_MAX = 60;
const ID = /^resp_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$/;

type Message = Record<string, unknown>;

/** A turn of the Responses API before it is answered. */
interface AskedTurn {
  previousResponseId: string | null;
  /** What is asked in this turn, as chat messages. */
  asked: readonly object[];
}

/** Stored responses as one request of a user may use them. */
export interface CallerResponses {
  /** All messages that lead to a response, oldest first. Another user's looks like none at all. */
  history(responseId: string): Promise<object[]>;
  /** What stores the turn once it is answered and says whether it could; null when the turn is too large already. */
  turn(asked: AskedTurn): ((answer: StoredMessage) => Promise<boolean>) | null;
}

interface KeptTurn {
  requestId: string;
  userId: string;
  previousResponseId: string | null;
  /** JSON of the chat messages: what was asked, and the answer. */
  messages: string;
}

/** The request's id in a response's; null when it cannot be one of ours. */
const requestIdOf = (responseId: string): string | null => {
  const parts = ID.exec(responseId);
  return parts?.slice(1).join("-") ?? null;
};

/**
 * Answers of the Responses API, kept for `previous_response_id`. One that was gone on from becomes a conversation,
 * which its owner sees and can delete, and with it what is kept here.
 */
export class StoredResponses {
  readonly #store: ResponseStore;
  readonly #writer: ResponseWriter;

  constructor(readonly options: { db: Database; clock: Clock; log: Log; conversations: Conversations }) {
    const { db, clock, log } = options;
    this.#store = new ResponseStore(db);
    this.#writer = new ResponseWriter({ store: this.#store, clock, log });
  }

  of(userId: string, requestId: string): CallerResponses {
    return {
      history: (responseId) => this.#history(userId, responseId),
      turn: ({ previousResponseId, asked }) => {
        const askedJson = JSON.stringify(asked);
        if (askedJson.length > TURN_CHARS_MAX) return null;
        return async (answer) => {
          const answerJson = JSON.stringify({ ...answer, content: answer.content || null });
          const separator = asked.length > 0 ? "," : "";
          const messages = `${askedJson.slice(0, -1)}${separator}${answerJson}]`;
          if (messages.length > TURN_CHARS_MAX) return false;
          return this.#keep({ requestId, userId, previousResponseId, messages });
        };
      },
    };
  }

  async #history(userId: string, responseId: string): Promise<object[]> {
    const id = requestIdOf(responseId);
    const chain = id ? await this.#store.chain(userId, id, CHAIN) : [];
    if (chain.length === 0) fail("invalid_params", `\`previous_response_id\`: ${NOT_KEPT}`);
    if (chain.at(-1)!.previous_id !== null)
      fail(
        "invalid_params",
        `\`previous_response_id\`: what it began with is no longer kept, or all of it is more than ${CHAIN.turnsMax} turns or ${CHAIN.charsMax} characters; send the whole conversation in \`input\``,
      );
    return chain.reverse().flatMap(({ messages }) => JSON.parse(messages) as object[]);
  }

  /** Whether a turn was kept. The answer waits for a moment at most, and is sent in any case. */
  #keep({ requestId, userId, previousResponseId, messages }: KeptTurn): Promise<boolean> {
    const { clock } = this.options;
    const previous_id = previousResponseId && requestIdOf(previousResponseId);
    // Postgres keeps no NUL in a text; in JSON it is always escaped.
    const row: ResponseRow = {
      id: requestId,
      user_id: userId,
      previous_id,
      conversation_id: null,
      messages,
      created_at: isoTime(clock.now()),
    };
    if (previous_id === null) return this.#writer.write(row);
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const cancel = clock.after(WAIT_MS_MAX, () => resolve(false));
    void this.#keepNext(row, previous_id).then((isKept) => {
      cancel();
      resolve(isKept);
    });
    return promise;
  }

  /** A turn that went on from another one. */
  async #keepNext(row: ResponseRow, previousId: string): Promise<boolean> {
    const turn = JSON.parse(row.messages) as Message[];
    try {
      row.conversation_id = await this.#conversationOf(row.user_id, previousId, turn);
    } catch (error) {
      this.options.log.error("a response could not be stored", { request_id: row.id, error });
      return false;
    }
    return this.#writer.write(row);
  }

  /** The conversation that the turn is added to, begun with the turn before it where there is none yet. */
  async #conversationOf(
    userId: string,
    previousId: string,
    turn: readonly Message[],
  ): Promise<string | null> {
    const { conversations } = this.options;
    const [previous] = await this.#store.chain(userId, previousId, ONE_TURN);
    if (!previous) return null;
    let id = previous.conversation_id;
    let messages = turn;
    if (id === null) {
      const before = JSON.parse(previous.messages) as Message[];
      const opening = textOf(before.find(({ role }) => role === "user")?.content).trim();
      const title = opening.slice(0, TITLE_CHARS_MAX).toWellFormed();
      ({ id } = await conversations.create(userId, title || undefined));
      await this.#store.setConversation(previousId, id);
      messages = [...before, ...turn];
    }
    await conversations.append(id, messages.map(toStored));
    return id;
  }

  readonly sweep = (nowMs: number, rowsMax: number): Promise<number> =>
    this.#store.removeOlderThan(isoTime(nowMs - KEPT_MS), rowsMax);
}

const NOT_KEPT =
  "no such response of yours is kept: it may be older than 30 days, too large, made with `store: false`, or deleted; send the whole conversation in `input`";
