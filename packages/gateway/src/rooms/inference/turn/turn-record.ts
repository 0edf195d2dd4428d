import { isObject, objectsIn } from "../../../kernel/json.ts";
import { inSteps, nextTurn } from "../../../kernel/turns.ts";
import type { StoredMessage } from "../../conversations/index.ts";
import type { RecallState } from "../../memory/index.ts";
import type { Route } from "../../routing/index.ts";
import type { AnswerBody } from "../call/answer.ts";
import type { ChatFields } from "../request/fields.ts";
import type { Payload } from "../request/payload.ts";
import type { Choice } from "../stream/chat-meter.ts";
import { completeCalls } from "../stream/chat-meter.ts";
import type { ChatParts, ChatTurnOptions } from "./chat-turn.ts";

/** An answer is cut at this length when it is stored in a conversation or in memory. */
const COLLECTED_CHARS_MAX = 4 * 1024 * 1024;
const TOOL_CALLS_MAX = 256;

/** The text of a message's content, whatever its form. */
export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  return objectsIn(content)
    .flatMap(({ text }) => (typeof text === "string" && text !== "" ? text : []))
    .join("\n");
}

/** A non-empty list; undefined for anything else. */
const listOf = (value: unknown): unknown[] | undefined =>
  Array.isArray(value) && value.length > 0 ? value : undefined;

export function toStored(message: Record<string, unknown>): StoredMessage {
  const { tool_call_id } = message;
  const parts = listOf(message.content);
  const images = listOf(message.images);
  const tools = listOf(message.tool_calls);
  return {
    role: String(message.role ?? "user"),
    content: textOf(message.content),
    ...(parts && { parts }),
    ...(images && { images }),
    ...(tools && { tool_calls: tools.map(withId) }),
    ...(typeof tool_call_id === "string" && { tool_call_id }),
  };
}

/** Every call needs an id, because results refer to it. */
const withId = (call: unknown, position: number): unknown =>
  isObject(call) && typeof call.id !== "string" ? { ...call, id: `call_${position}` } : call;

/** The user's current turn: their last message, if any. */
export function userTurn(messages: unknown): StoredMessage | null {
  const last = objectsIn(messages).findLast(({ role }) => role === "user");
  return last ? toStored(last) : null;
}

export const choicesOf = ({ parsed }: AnswerBody): Record<string, unknown>[] =>
  objectsIn(isObject(parsed) ? parsed.choices : null);

export const messagesOf = (body: AnswerBody): Record<string, unknown>[] =>
  objectsIn(choicesOf(body).map(({ message }) => message));

/** The first choice of a whole answer, as a message. */
export function answerOf(body: AnswerBody): Record<string, unknown> | null {
  const [choice] = choicesOf(body);
  if (!choice) return null;
  return isObject(choice.message) ? choice.message : { role: "assistant", content: choice.text ?? "" };
}

/** The fields of a request that are kept in a capture, for a look or a replay. */
const ASKED_FIELDS =
  "messages prompt input dimensions tools tool_choice response_format temperature top_p seed stop max_tokens max_completion_tokens reasoning_effort".split(
    " ",
  );

export const askedOf = (payload: Payload): Record<string, unknown> =>
  Object.fromEntries(
    ASKED_FIELDS.flatMap((name) => (payload.has(name) ? [[name, payload.value(name)]] : [])),
  );

export class AnswerCollector {
  /** The model's reasoning, if its API shows it. */
  reasoning = "";
  #content = "";
  #calls: { id?: string; type: string; function: { name: string; arguments: string } }[] = [];

  add({ index, delta }: Choice): void {
    if (index !== 0) return;
    if (typeof delta.content === "string" && this.#content.length < COLLECTED_CHARS_MAX)
      this.#content += delta.content;
    if (typeof delta.reasoning_content === "string" && this.reasoning.length < COLLECTED_CHARS_MAX)
      this.reasoning += delta.reasoning_content;
    for (const piece of objectsIn(delta.tool_calls)) this.#tool(piece);
  }

  #tool(piece: Record<string, unknown>): void {
    const index = typeof piece.index === "number" ? piece.index : 0;
    if (index < 0 || index >= TOOL_CALLS_MAX) return;
    this.#calls[index] ??= { type: "function", function: { name: "", arguments: "" } };
    const call = this.#calls[index];
    const { name, arguments: args }: Record<string, unknown> = isObject(piece.function) ? piece.function : {};
    if (typeof piece.id === "string") call.id = piece.id;
    // Some servers repeat the name in every piece.
    if (typeof name === "string") call.function.name ||= name;
    if (typeof args === "string" && call.function.arguments.length < COLLECTED_CHARS_MAX)
      call.function.arguments += args;
  }

  message(): StoredMessage {
    const calls = this.#calls.filter(Boolean).map(withId);
    return { role: "assistant", content: this.#content, ...(calls.length > 0 && { tool_calls: calls }) };
  }
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
  /** Collects a streamed answer that has to be stored; null: nothing is read from storage or written to it. */
  readonly collector: AnswerCollector | null;
  recall: RecallState = "disabled";
  #userTurn: StoredMessage | null = null;
  boundTo?: string | null;
  #added: StoredMessage[] = [];

  constructor(
    readonly parts: ChatParts,
    readonly options: Pick<ChatTurnOptions, "asker" | "payload" | "isConversation" | "native">,
    readonly fields: ChatFields,
  ) {
    // A request that may pass verbatim has nothing added to it, and is not stored.
    const isStored = !options.native && (fields.conversationId || parts.memory.enabled);
    this.collector = isStored ? new AnswerCollector() : null;
  }

  async access(): Promise<void> {
    const { conversationId: id } = this.fields;
    const { userId } = this.options.asker.payer;
    if (id) this.boundTo = (await this.parts.conversations.access(userId, id)).backend;
  }

  /** Adds history and recalled facts: JSON of the messages to send; null: send the client's own. */
  async prepare(signal: AbortSignal): Promise<string | null> {
    const { conversations, memory } = this.parts;
    const { asker, payload, isConversation } = this.options;
    const { userId } = asker.payer;
    const { conversationId } = this.fields;
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
    if (!memory.enabled || !this.fields.memory) return json;
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
    return isObject(first) ? `${this.fields.conversationId} ${first.id}` : null;
  }

  /** Stores the client's messages at send time, whatever becomes of the answer. */
  async sent(route: Route): Promise<void> {
    const { conversationId } = this.fields;
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
    const content = this.collector?.message().content ?? "";
    if (!this.options.isConversation || !this.fields.conversationId || content === "") return;
    this.parts.metering.written();
    await this.#append({ role: "assistant", content, incomplete: reason.slice(0, REASON_CHARS_MAX) });
  }

  async #append(answer: StoredMessage, servedBy?: Route): Promise<void> {
    const { conversationId } = this.fields;
    if (!conversationId) return;
    try {
      await this.parts.conversations.append(conversationId, [answer]);
      if (servedBy) await this.#bind(conversationId, servedBy);
    } catch (error) {
      // The client already has the answer: failing to store it must not fail the request.
      const request_id = this.options.asker.requestId;
      this.parts.log.error("an answer could not be added to its conversation", { request_id, error });
    }
  }

  async #completed(answer: StoredMessage | null, route: Route): Promise<void> {
    if (!answer || (answer.content === "" && !answer.tool_calls)) return;
    this.parts.metering.written();
    const place = this.#placeOf(answer);
    const thoughts = this.collector?.reasoning ?? "";
    if (place && thoughts && thoughts.length <= THOUGHTS_CHARS_MAX) this.parts.thoughts.set(place, thoughts);
    await this.#append(answer, route);
    if (this.parts.memory.enabled && this.#userTurn) {
      const messages = [this.#userTurn, answer].map(({ role, content }) => ({ role, content }));
      const { payer, requestId } = this.options.asker;
      this.parts.memory.writeback({ userId: payer.userId, messages, idempotencyKey: requestId });
    }
  }
}

type HistoryMessage = Record<string, unknown>;

const PARAGRAPH = "\n\n";
/** Placeholder for a missing tool result: upstreams refuse a call without one. */
const NO_RESULT = "(no result)";
/** Put before a conversation that begins with an answer, e.g. from a voice session. */
const OPENING = "(continued)";

const isSystem = ({ role }: { role?: unknown }) => role === "system" || role === "developer";
const callsOf = ({ tool_calls }: { tool_calls?: unknown }): HistoryMessage[] =>
  Array.isArray(tool_calls) ? tool_calls.filter((call) => isObject(call) && typeof call.id === "string") : [];

/**
 * Continues a stored conversation. Messages both at its end and at the request's beginning are kept once. `added` is
 * new, and `sequence` is the whole conversation in an order that every upstream accepts.
 * `sentIsWhole`: the request has the whole conversation; only what follows its last answer is new.
 */
export function continueWith(
  stored: readonly StoredMessage[],
  sent: readonly HistoryMessage[],
  { sentIsWhole }: { sentIsWhole: boolean },
): { added: StoredMessage[]; sequence: HistoryMessage[] } {
  const turns = sent.filter((message) => !isSystem(message));
  const fresh = sentIsWhole
    ? turns.slice(turns.findLastIndex(({ role }) => role === "assistant") + 1)
    : turns;
  const known = stored.filter((message) => !isSystem(message));
  const added = fresh.slice(overlap(known, fresh.map(toStored)));
  const systems = sent.filter(isSystem);
  const storedSystems = lastRunOfSystems(stored);
  const isNewSystem = systems.length > 0 && textIn(systems) !== textIn(storedSystems);
  return {
    added: [...(isNewSystem ? systems : []), ...added].map(toStored),
    sequence: [
      ...oneSystem(systems.length > 0 ? systems : storedSystems.map(fromStored)),
      // Converted as if read from storage, so that the next turn sends the same bytes.
      ...inOrder(
        known.map(fromStored),
        added.map((message) => fromStored(toStored(message))),
      ),
    ],
  };
}

const textIn = (messages: readonly { content?: unknown }[]): string =>
  messages.map(({ content }) => textOf(content)).join(PARAGRAPH);

/** How many messages at the end of `known` are also the beginning of `fresh`. */
function overlap(known: readonly StoredMessage[], fresh: readonly StoredMessage[]): number {
  const head = fresh.map(signOf);
  // Knuth-Morris-Pratt: borders[i] is the length of the longest proper prefix of head[0..i] that is also its suffix.
  const borders = [0];
  const longer = (matched: number, sign: string): number => {
    while (matched > 0 && (matched === head.length || head[matched] !== sign))
      matched = borders[matched - 1]!;
    return head[matched] === sign ? matched + 1 : 0;
  };
  for (let i = 1; i < head.length; i++) borders.push(longer(borders[i - 1]!, head[i]!));
  return known
    .slice(-fresh.length || known.length)
    .reduce((matched, each) => longer(matched, signOf(each)), 0);
}

/** Equal for equal messages. */
const signOf = (message: StoredMessage): string => {
  const { role, content, tool_call_id, parts, images } = message;
  return JSON.stringify([role, content, tool_call_id, parts, images, callsOf(message).map(({ id }) => id)]);
};

/** The latest system prompt, which may consist of several messages. */
function lastRunOfSystems(stored: readonly StoredMessage[]): StoredMessage[] {
  const end = stored.findLastIndex(isSystem) + 1;
  let start = end;
  while (start > 0 && isSystem(stored[start - 1]!)) start--;
  return stored.slice(start, end);
}

/** Some models accept only one system message. */
function oneSystem(systems: readonly HistoryMessage[]): HistoryMessage[] {
  if (systems.length <= 1) return [...systems];
  return [{ role: systems[0]!.role, content: textIn(systems) }];
}

function fromStored(message: StoredMessage): HistoryMessage {
  const { role, content, parts, images, tool_calls, tool_call_id } = message;
  const isCallOnly = content === "" && tool_calls !== undefined;
  return {
    role,
    content: parts ?? (isCallOnly ? null : content),
    ...(images && { images }),
    ...(tool_calls && { tool_calls }),
    ...(tool_call_id !== undefined && { tool_call_id }),
  };
}

/** Puts results right behind their calls, drops empty answers and joins consecutive user texts. */
function inOrder(known: readonly HistoryMessage[], added: readonly HistoryMessage[]): HistoryMessage[] {
  const all = [...known, ...added];
  const results = Map.groupBy(
    all.filter(({ role }) => role === "tool").reverse(),
    ({ tool_call_id }) => tool_call_id,
  );
  const used = new Set<HistoryMessage>();
  const sequence: HistoryMessage[] = [];
  for (const message of all) {
    if (message.role === "tool") continue;
    const calls = message.role === "assistant" ? callsOf(message) : [];
    if (message.role === "assistant" && calls.length === 0 && textOf(message.content) === "") continue;
    if (!mergeUser(sequence, message)) sequence.push(message);
    for (const { id } of calls) {
      const result = results.get(id)?.pop();
      if (result) used.add(result);
      sequence.push(result ?? { role: "tool", tool_call_id: id, content: NO_RESULT });
    }
  }
  // A result without a call is the client's mistake; let the upstream report it.
  sequence.push(...added.filter((message) => message.role === "tool" && !used.has(message)));
  if (sequence[0]?.role === "assistant") sequence.unshift({ role: "user", content: OPENING });
  return sequence;
}

/** Joins an unanswered question and the next one: many chat templates reject two user messages in a row. */
function mergeUser(sequence: HistoryMessage[], message: HistoryMessage): boolean {
  const last = sequence.at(-1);
  const isPlain = (each: HistoryMessage | undefined): each is HistoryMessage & { content: string } =>
    each?.role === "user" && typeof each.content === "string" && each.images === undefined;
  if (!isPlain(last) || !isPlain(message)) return false;
  sequence[sequence.length - 1] = { ...last, content: last.content + PARAGRAPH + message.content };
  return true;
}
