import { isObject } from "../../../kernel/json.ts";
import type { StoredMessage } from "../../conversations/index.ts";
import type { AnswerBody } from "../call/answer-body.ts";
import type { Payload } from "../request/payload.ts";
import type { Choice } from "../stream/chat-meter.ts";

/** An answer is cut at this length when it is stored in a conversation or in memory. */
const COLLECTED_CHARS_MAX = 4 * 1024 * 1024;
const TOOL_CALLS_MAX = 256;

/** The text of a message's content, whatever its form. */
export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content
    .filter(isObject)
    .map(({ text }) => (typeof text === "string" ? text : ""))
    .filter(Boolean)
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
  if (!Array.isArray(messages)) return null;
  const last = messages.filter(isObject).findLast(({ role }) => role === "user");
  return last ? toStored(last) : null;
}

export function choicesOf({ parsed }: AnswerBody): Record<string, unknown>[] {
  const choices = isObject(parsed) ? parsed.choices : null;
  return Array.isArray(choices) ? choices.filter(isObject) : [];
}

export const messagesOf = (body: AnswerBody): Record<string, unknown>[] =>
  choicesOf(body)
    .map(({ message }) => message)
    .filter(isObject);

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
    if (Array.isArray(delta.tool_calls))
      for (const piece of delta.tool_calls.filter(isObject)) this.#tool(piece);
  }

  #tool(piece: Record<string, unknown>): void {
    const index = typeof piece.index === "number" ? piece.index : 0;
    if (index < 0 || index >= TOOL_CALLS_MAX) return;
    this.#calls[index] ??= { type: "function", function: { name: "", arguments: "" } };
    const call = this.#calls[index];
    const { name, arguments: args } = isObject(piece.function)
      ? piece.function
      : ({} as Record<string, unknown>);
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
