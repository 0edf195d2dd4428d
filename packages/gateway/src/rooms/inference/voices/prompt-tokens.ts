import { COUNTED_MAX, estimateTokens, IMAGE_TOKENS } from "../../metering/index.ts";
import type { ChatBody } from "./chat-body.ts";

/** Role marks and separators around each message. */
const MESSAGE_TOKENS = 4;
const REPLY_TOKENS = 3;

/** Estimated prompt tokens of a chat body: the gateway has no tokenizers. */
export function promptTokens({ messages, tools }: ChatBody): number {
  const texts = tools ? [JSON.stringify(tools)] : [];
  let tokens = REPLY_TOKENS + MESSAGE_TOKENS * messages.length;
  for (const { content, reasoning_content = "", tool_calls = [] } of messages) {
    texts.push(reasoning_content);
    for (const call of tool_calls) texts.push(call.function.name + call.function.arguments);
    if (typeof content === "string") texts.push(content);
    else
      for (const part of content ?? [])
        if (part.type === "text") texts.push(part.text);
        else tokens += IMAGE_TOKENS;
  }
  const chars = texts.reduce((sum, text) => sum + text.length, 0);
  const share = Math.min(1, COUNTED_MAX / chars);
  return texts.reduce((sum, text) => sum + estimateTokens(text, text.length * share), tokens);
}
