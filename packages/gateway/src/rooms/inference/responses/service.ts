import type { Clock } from "../../../kernel/clock.ts";
import { fail, Outage } from "../../../kernel/errors.ts";
import type { Log } from "../../../kernel/log.ts";
import type { Database } from "../../../storage/contract.ts";
import type { Conversations } from "../../conversations/index.ts";
import { firstIdAt } from "../../requests/index.ts";
import { textOf, toStored } from "../turn/messages.ts";
import {
  messagesOfTurn,
  type PartialTurn,
  type StoredTurn,
  type WholeTurn,
} from "../voices/responses/request.ts";
import type { CallerResponses } from "../voices/responses/stored.ts";
import { requestIdOf, responseIdOf } from "./ids.ts";
import type { ResponseRow } from "./rows.ts";
import { ResponseStore } from "./store.ts";
import { ResponseWriter } from "./writer.ts";

const KEPT_MS = 30 * 86_400_000;
/** A larger turn is answered with `store: false`. */
const TURN_CHARS_MAX = 256 * 1024;
/** What one request may go on from. It is read before anything is charged for it, so it must not be much. */
const CHAIN = { turnsMax: 1_000, charsMax: 8 * 1024 * 1024 };
/** One that is not found may have been answered by another process a moment ago, which has yet to write it. */
const ELSEWHERE_MS = 500;
/** An id tells when the request began. No answer takes longer than an hour; clocks of other machines may be wrong. */
const BEGAN_WITHIN_MS = 2 * 3_600_000;
const CLOSE_WITHIN_MS = 5_000;
const TITLE_CHARS_MAX = 60;

interface StoredResponsesOptions {
  db: Database;
  clock: Clock;
  log: Log;
  conversations: Conversations;
  /** Whether other processes store responses, too. */
  isShared: boolean;
}

/**
 * Answers of the Responses API, kept for `previous_response_id` and to be read again. One that was gone on from
 * becomes a conversation, which its owner sees and can delete, and with it what is kept here.
 */
export class StoredResponses {
  readonly #store: ResponseStore;
  readonly #writer: ResponseWriter;

  constructor(readonly options: StoredResponsesOptions) {
    const { db, clock, log } = options;
    this.#store = new ResponseStore(db);
    const joined = (row: ResponseRow, previousId: string) => this.#joinConversation(row, previousId);
    this.#writer = new ResponseWriter({ store: this.#store, clock, log, joined });
  }

  of(userId: string, requestId: string): CallerResponses {
    return {
      history: (responseId) => this.#history(userId, responseId),
      turn: ({ previousResponseId, input }) => {
        const inputJson = JSON.stringify(input);
        if (inputJson.length > TURN_CHARS_MAX) return null;
        const previousId = previousResponseId && requestIdOf(previousResponseId);
        return (responseJson) => {
          const json = turnJson(inputJson, responseJson);
          return json !== null && this.#writer.keep({ id: requestId, userId, previousId, json });
        };
      },
    };
  }

  /** A user's response and what was asked for it. */
  async get(userId: string, responseId: string): Promise<WholeTurn> {
    const row = await this.#row(userId, responseId);
    const turn = row && turnIn(row, responseId);
    if (!turn) return fail("not_found", NOT_KEPT);
    if (!isWhole(turn)) return fail("not_found", NOT_KEPT_WHOLE);
    return row.repeated === null
      ? turn
      : { ...turn, response: { ...turn.response, ...JSON.parse(row.repeated) } };
  }

  /** Nothing can go on from it any longer. A conversation that it is part of stays. */
  async remove(userId: string, responseId: string): Promise<void> {
    const row = await this.#row(userId, responseId);
    if (!row || !(await this.#store.remove(userId, requestIdOf(responseId)!))) fail("not_found", NOT_KEPT);
  }

  async #row(userId: string, responseId: string): Promise<ResponseRow | null> {
    const id = requestIdOf(responseId);
    if (id === null) return null;
    if (!(await this.#writer.written(userId, id))) throw new Outage("stored responses cannot be written");
    const row = await this.#store.find(userId, id);
    if (row || !this.options.isShared || !isRecent(id, this.options.clock.now())) return row;
    await Bun.sleep(ELSEWHERE_MS);
    return this.#store.find(userId, id);
  }

  async #history(userId: string, responseId: string): Promise<StoredTurn[]> {
    const last = await this.#row(userId, responseId);
    const chain = last ? await this.#store.chain(last, CHAIN) : [];
    const turns = chain.reverse().map((row) => turnIn(row, last === row ? responseId : null));
    if (!turns.at(-1)) fail("invalid_params", `\`previous_response_id\`: ${NOT_KEPT}; ${SEND_ALL}`);
    if (chain[0]!.previous_id !== null)
      fail(
        "invalid_params",
        `\`previous_response_id\`: what it began with is no longer kept, or all of it is more than ${CHAIN.turnsMax} turns or ${CHAIN.charsMax} characters; ${SEND_ALL}`,
      );
    return turns.filter((turn) => turn !== undefined);
  }

  /** Adds a turn to the conversation of the one before it, which is begun with that one where there is none yet. */
  async #joinConversation(row: ResponseRow, previousId: string): Promise<void> {
    const { conversations } = this.options;
    if (row.conversation_id !== null) return;
    const previous = await this.#store.find(row.user_id, previousId);
    const before = previous && turnIn(previous, responseIdOf(previousId));
    if (!before) return;
    const [turn] = JSON.parse(row.content) as [WholeTurn | PartialTurn];
    const messages = messagesOfTurn(turn);
    let id = previous.conversation_id;
    if (id === null) {
      messages.unshift(...messagesOfTurn(before));
      const opening = textOf(messages.find(({ role }) => role === "user")?.content).trim();
      const title = opening.slice(0, TITLE_CHARS_MAX).toWellFormed();
      ({ id } = await conversations.create(row.user_id, title || undefined));
      await this.#store.setConversation(row.user_id, previousId, id);
    }
    await conversations.append(
      id,
      messages.map((message) => toStored({ ...message })),
    );
    row.conversation_id = id;
    if (isWhole(turn)) setApart(row, turn);
  }

  close(): Promise<void> {
    return this.#writer.close(CLOSE_WITHIN_MS);
  }

  readonly sweep = (nowMs: number, rowsMax: number): Promise<number> =>
    this.#store.removeBelow(firstIdAt(nowMs - KEPT_MS), rowsMax);
}

const isRecent = (id: string, nowMs: number): boolean =>
  id > firstIdAt(nowMs - BEGAN_WITHIN_MS) && id < firstIdAt(nowMs + BEGAN_WITHIN_MS);

/** What is stored of a turn: of a response that is too large only its output; null where that is, too. */
function turnJson(inputJson: string, responseJson: string): string | null {
  const whole = `{"input":${inputJson},"response":${responseJson}}`;
  if (whole.length <= TURN_CHARS_MAX) return whole;
  const { id, output } = JSON.parse(responseJson) as WholeTurn["response"];
  const part = `{"input":${inputJson},"response":${JSON.stringify({ id, output })}}`;
  return part.length <= TURN_CHARS_MAX ? part : null;
}

/** One turn of a row; without an id, the only one that it has. */
function turnIn({ turns, content }: ResponseRow, responseId: string | null): StoredTurn | undefined {
  const parsed: unknown[] = JSON.parse(content);
  if (turns === 0) return parsed as StoredTurn;
  return (parsed as PartialTurn[]).find(({ response }) => responseId === null || response.id === responseId);
}

const isWhole = (turn: StoredTurn): turn is WholeTurn => "response" in turn && "object" in turn.response;

/** Tools and instructions are most of many responses, and those that go on from it read the rest only. */
function setApart(row: ResponseRow, { input, response }: WholeTurn): void {
  const { instructions, tools, ...rest } = response;
  row.content = JSON.stringify([{ input, response: rest }]);
  row.repeated = JSON.stringify({ instructions, tools });
}

const NOT_KEPT =
  "no such response of yours is kept: it may be older than 30 days, too large, made with `store: false`, or deleted";
const NOT_KEPT_WHOLE =
  "this response is kept for `previous_response_id` only: with its tools and instructions it was too large to be kept whole, or it was made before responses were";
const SEND_ALL = "send the whole conversation in `input`";
