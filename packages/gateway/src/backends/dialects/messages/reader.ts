import { isObject } from "../../../kernel/json.ts";
import { OWN_SIGNATURES, ownThoughts } from "../../../kernel/own-thoughts.ts";
import { BackendError, type NativeDialect, type NativeReader } from "../../contract.ts";
import { eventText, largerCounts, sealed, wordsOf } from "../dialect.ts";
import { chatUsage } from "./answer.ts";

/** The text of what is nearly every event; null for another. */
const textOnly = (delta: unknown): string | null =>
  isObject(delta) &&
  delta.type === "text_delta" &&
  typeof delta.text === "string" &&
  Object.keys(delta).length === 2
    ? delta.text
    : null;

export class MessagesReader implements NativeReader {
  isComplete = false;
  /** The first event has counts as well, of an answer that has only begun. */
  isCounted = false;
  isOver = false;
  failure: string | null = null;
  #usage: Record<string, unknown> | null = null;
  #openBlock: number | null = null;

  get usage(): unknown {
    return chatUsage(this.#usage);
  }

  read(event: Record<string, unknown>): unknown {
    switch (event.type) {
      case "message_start":
        if (isObject(event.message)) this.#count(event.message.usage);
        return null;
      case "content_block_start":
        this.#openBlock = Number(event.index);
        return event.content_block;
      case "content_block_delta":
        this.isCounted = false;
        return textOnly(event.delta) ?? sealed(event.delta, "signature");
      case "content_block_stop":
        this.#openBlock = null;
        return null;
      case "message_delta":
        this.#count(event.usage);
        this.isCounted = isObject(event.usage) && event.usage.output_tokens != null;
        this.isComplete = true;
        return null;
      case "message_stop":
        this.isComplete = this.isOver = true;
        return null;
      case "error":
        this.failure = wordsOf(event.error);
        return null;
      default:
        return event.delta;
    }
  }

  #count(usage: unknown): void {
    if (isObject(usage)) this.#usage = largerCounts(this.#usage ?? {}, usage);
  }

  whole(message: Record<string, unknown>): unknown {
    if (!Array.isArray(message.content))
      throw new BackendError("transport", "the upstream answered without `content`");
    this.#count(message.usage);
    this.isComplete = this.isOver = this.isCounted = true;
    return message.content.map((block) => sealed(block, "signature"));
  }

  limited(usage: { promptTokens: number; completionTokens: number } | null): string {
    const closed =
      this.#openBlock === null
        ? ""
        : eventText({ type: "content_block_stop", index: this.#openBlock }, "content_block_stop");
    const delta = { stop_reason: "max_tokens", stop_sequence: null };
    const last = { ...this.#usage, output_tokens: usage?.completionTokens ?? 0 };
    return (
      closed +
      eventText({ type: "message_delta", delta, usage: last }, "message_delta") +
      eventText({ type: "message_stop" }, "message_stop")
    );
  }

  failed(message: string): string {
    return eventText({ type: "error", error: { type: "api_error", message } }, "error");
  }
}

const isOwn = (block: unknown): boolean =>
  isObject(block) && block.type === "thinking" && ownThoughts(block) !== null;
const isOfType = (block: unknown, type: string): boolean => isObject(block) && block.type === type;

/** Thinking of other models is left out. */
export const mended: NativeDialect["mended"] = (body) => {
  if (!body.includes('"signature"') || !OWN_SIGNATURES.some((text) => body.includes(text))) return [];
  const given = body.value("messages");
  if (!Array.isArray(given)) return [];
  const messages = given.flatMap((message) => {
    if (!isObject(message) || !Array.isArray(message.content) || !message.content.some(isOwn))
      return [message];
    const content = message.content.filter((block) => !isOwn(block));
    return content.length > 0 ? [{ ...message, content }] : [];
  });
  const thinking = body.value("thinking");
  const newest: unknown = messages.findLast((message) => isObject(message) && message.role === "assistant");
  const blocks = isObject(newest) && Array.isArray(newest.content) ? newest.content : [];
  // With a budget, the calls whose results are new must come with the thoughts that led to them.
  const isRefused =
    isOfType(thinking, "enabled") &&
    blocks.some((block) => isOfType(block, "tool_use")) &&
    !isOfType(blocks[0], "thinking") &&
    !isOfType(blocks[0], "redacted_thinking");
  return [
    ["messages", JSON.stringify(messages)],
    ...(isRefused ? [["thinking", '{"type":"disabled"}'] as const] : []),
  ];
};
