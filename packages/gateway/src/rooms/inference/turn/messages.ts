import { isObject } from "../../../kernel/json.ts";
import type { StoredMessage } from "../../conversations/index.ts";
import type { AnswerBody } from "../call/answer-body.ts";
import type { Payload } from "../request/payload.ts";
import type { Choice } from "../stream/chat-meter.ts";

/** What is kept of an answer for a conversation or the memory; a longer one is cut there. */
const COLLECTED_CHARS_MAX = 4 * 1024 * 1024;
const TOOL_CALLS_MAX = 256;

/** The text of a message's content, in any of its forms. */
export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content
    .filter(isObject)
    .map(({ text }) => (typeof text === "string" ? text : ""))
    .filter(Boolean)
    .join("\n");
}

/** A list with something in it, as it is; otherwise nothing. */
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

/** A result names its call, so every call has an id. */
const withId = (call: unknown, position: number): unknown =>
  isObject(call) && typeof call.id !== "string" ? { ...call, id: `call_${position}` } : call;

/** The turn that the user is making: the last message of theirs, or null when there is none. */
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

/** The answer of a whole body that people would look at: its first choice. */
export function answerOf(body: AnswerBody): Record<string, unknown> | null {
  const [choice] = choicesOf(body);
  if (!choice) return null;
  return isObject(choice.message) ? choice.message : { role: "assistant", content: choice.text ?? "" };
}

/** What makes a request what it is, to be looked at or sent again. */
const ASKED_FIELDS =
  "messages prompt input dimensions tools tool_choice response_format temperature top_p seed stop max_tokens max_completion_tokens reasoning_effort".split(
    " ",
  );

export const askedOf = (payload: Payload): Record<string, unknown> =>
  Object.fromEntries(
    ASKED_FIELDS.flatMap((name) => (payload.has(name) ? [[name, payload.value(name)]] : [])),
  );

export class AnswerCollector {
  /** The model's thoughts, where its API shows them. */
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
    // Some servers repeat it in every piece.
    if (typeof name === "string") call.function.name ||= name;
    if (typeof args === "string" && call.function.arguments.length < COLLECTED_CHARS_MAX)
      call.function.arguments += args;
  }

  message(): StoredMessage {
    const calls = this.#calls.filter(Boolean).map(withId);
    return { role: "assistant", content: this.#content, ...(calls.length > 0 && { tool_calls: calls }) };
  }
}
