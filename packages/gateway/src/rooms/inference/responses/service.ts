import { isoTime } from "../../../kernel/clock.ts";
import { fail, Outage } from "../../../kernel/errors.ts";
import { firstIdAt } from "../../../kernel/ids.ts";
import { problemOf } from "../../../kernel/json-scan.ts";
import { nextTurn } from "../../../kernel/turns.ts";
import type { Conversations } from "../../conversations/index.ts";
import type { Needs } from "../../foundation.ts";
import { ownerOf, type Principal } from "../../keys/index.ts";
import { textOf, toStored } from "../turn/turn-record.ts";
import { messagesOfTurn, type StoredTurn, type WholeTurn } from "../voices/responses/request.ts";
import type { CallerResponses } from "../voices/voice.ts";
import { type ChainedRow, type ResponseRow, ResponseStore, ResponseWriter } from "./store.ts";

const KEPT_MS = 30 * 86_400_000;
/** A larger turn is not stored, and answered with `store: false`. */
const TURN_CHARS_MAX = 256 * 1024;
/** The most that one request may continue from. Bounded because it is read before its cost is held. */
const CHAIN = { turnsMax: 1_000, charsMax: 8 * 1024 * 1024 };
/** Another process may have answered a moment ago and not written the response yet. */
const ELSEWHERE_MS = 500;
/** How old an id may be to count as recent: no answer takes longer than an hour, plus room for wrong clocks. */
const BEGAN_WITHIN_MS = 2 * 3_600_000;
const CLOSE_WITHIN_MS = 5_000;
const TITLE_CHARS_MAX = 60;

/** Who stores or reads a response. A key with limits of its own only sees what it stored. */
export type ResponseHolder = Pick<Principal, "userId" | "keyId" | "limits" | "models">;

const isOf = ({ key_id }: ResponseRow, holder: ResponseHolder): boolean =>
  [null, key_id].includes(ownerOf(holder).keyId);

interface StoredResponsesOptions extends Needs<"db" | "clock" | "log"> {
  conversations: Conversations;
  /** Whether other processes also store responses. */
  isShared: boolean;
}

/** Answers kept for `previous_response_id`. A continued one becomes a conversation, which its owner can delete. */
export class StoredResponses {
  readonly #store: ResponseStore;
  readonly #writer: ResponseWriter;

  constructor(readonly options: StoredResponsesOptions) {
    const { db, clock, log } = options;
    this.#store = new ResponseStore(db);
    const joined = (row: ResponseRow, previousId: string) => this.#joinConversation(row, previousId);
    this.#writer = new ResponseWriter({ store: this.#store, clock, log, joined });
  }

  of(holder: ResponseHolder, requestId: string): CallerResponses {
    return {
      history: (responseId) => this.#history(holder, responseId),
      turn: ({ previousResponseId, input }) => {
        const inputJson = JSON.stringify(input);
        if (inputJson.length > TURN_CHARS_MAX) return null;
        const previousId = previousResponseId && requestIdOf(previousResponseId);
        return (responseJson) => {
          const stored = partsOf(inputJson, responseJson);
          if (stored === null) return false;
          const created_at = isoTime(this.options.clock.now());
          return this.#writer.keep({
            ...{ id: requestId, user_id: holder.userId, key_id: holder.keyId, previous_id: previousId },
            ...{ conversation_id: null, ...stored, created_at },
          });
        };
      },
    };
  }

  /** A user's response and its input. */
  async get(holder: ResponseHolder, responseId: string): Promise<WholeTurn> {
    const row = await this.#row(holder, responseId);
    if (!row) return fail("not_found", NOT_KEPT);
    if (row.response === null) return fail("not_found", NOT_KEPT_WHOLE);
    const { input, output } = turnOf(row);
    return { input, response: { ...JSON.parse(row.response), output } };
  }

  /** Deletes a response, so that nothing can continue from it. A conversation that it is part of stays. */
  async remove(holder: ResponseHolder, responseId: string): Promise<void> {
    const row = await this.#row(holder, responseId);
    if (!row || !(await this.#store.remove(holder.userId, row.id))) fail("not_found", NOT_KEPT);
  }

  async #row(holder: ResponseHolder, responseId: string): Promise<ResponseRow | null> {
    const { userId } = holder;
    const id = requestIdOf(responseId);
    if (id === null) return null;
    if (!(await this.#writer.written(userId, id))) throw new Outage("stored responses cannot be written");
    let row = await this.#store.find(userId, id);
    if (!row && this.options.isShared && isRecent(id, this.options.clock.now())) {
      await Bun.sleep(ELSEWHERE_MS);
      row = await this.#store.find(userId, id);
    }
    return row && isOf(row, holder) ? row : null;
  }

  async #history(holder: ResponseHolder, responseId: string): Promise<StoredTurn[]> {
    const last = await this.#row(holder, responseId);
    const chain = last ? await this.#store.chain(last, CHAIN) : [];
    if (chain.length === 0) fail("invalid_params", `\`previous_response_id\`: ${NOT_KEPT}; ${SEND_ALL}`);
    // The whole chain becomes one request, so the limits of a request apply to it.
    const problem = problemOf(chain.map(({ input, output }) => input + output).join(""));
    if (problem !== null) fail("invalid_params", `\`previous_response_id\`: ${problem}; ${SEND_ALL}`);
    const turns: StoredTurn[] = [];
    for (const row of chain.reverse()) {
      await nextTurn();
      turns.push(turnOf(row));
    }
    if (chain[0]!.previous_id !== null)
      fail(
        "invalid_params",
        `\`previous_response_id\`: what it began with is no longer kept, or all of it is more than ${CHAIN.turnsMax} turns or ${CHAIN.charsMax} characters; ${SEND_ALL}`,
      );
    return turns;
  }

  /** Adds a turn to the conversation of the turn before it; creates the conversation if there is none. */
  async #joinConversation(row: ResponseRow, previousId: string): Promise<void> {
    const { conversations } = this.options;
    if (row.conversation_id !== null) return;
    const previous = await this.#store.find(row.user_id, previousId);
    if (!previous) return;
    const messages = messagesOfTurn(turnOf(row));
    let id = previous.conversation_id;
    if (id === null) {
      messages.unshift(...messagesOfTurn(turnOf(previous)));
      const opening = textOf(messages.find(({ role }) => role === "user")?.content).trim();
      const title = opening.slice(0, TITLE_CHARS_MAX).toWellFormed();
      ({ id } = await conversations.create(row.user_id, title || undefined));
      await this.#store.setConversation(previousId, id);
    }
    await conversations.append(
      id,
      messages.map((message) => toStored({ ...message })),
    );
    row.conversation_id = id;
  }

  close(): Promise<void> {
    return this.#writer.close(CLOSE_WITHIN_MS);
  }

  readonly sweep = (nowMs: number, rowsMax: number): Promise<number> =>
    this.#store.removeBelow(firstIdAt(nowMs - KEPT_MS), rowsMax);
}

const ID = /^resp_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$/;

/** The request's id within a response's; null if the response cannot be ours. */
const requestIdOf = (responseId: string): string | null => ID.exec(responseId)?.slice(1).join("-") ?? null;

const isRecent = (id: string, nowMs: number): boolean =>
  id > firstIdAt(nowMs - BEGAN_WITHIN_MS) && id < firstIdAt(nowMs + BEGAN_WITHIN_MS);

const turnOf = ({ id, input, output }: ChainedRow): StoredTurn => ({
  id,
  input: JSON.parse(input),
  output: JSON.parse(output),
});

/** What is stored of a turn: only the output if the response is large, and null if that is too large as well. */
function partsOf(
  input: string,
  responseJson: string,
): Pick<ResponseRow, "input" | "output" | "response"> | null {
  const { output: items, ...rest } = JSON.parse(responseJson) as WholeTurn["response"];
  const output = JSON.stringify(items);
  if (input.length + output.length > TURN_CHARS_MAX) return null;
  const response = JSON.stringify(rest);
  const isWhole = input.length + output.length + response.length <= TURN_CHARS_MAX;
  return { input, output, response: isWhole ? response : null };
}

const NOT_KEPT =
  "no such response of yours is kept: it may be older than 30 days, too large, made with `store: false`, or deleted";
const NOT_KEPT_WHOLE =
  "this response is kept for `previous_response_id` only: with its tools and instructions it was too large to be kept whole";
const SEND_ALL = "send the whole conversation in `input`";
