import { COUNTED_MAX, estimateTokens, IMAGE_TOKENS } from "../../metering/index.ts";
import type { ChatBody, ChatMessage } from "./chat-body.ts";

/** Role marks and separators around each message. */
const MESSAGE_TOKENS = 4;
const REPLY_TOKENS = 3;

/** A message's texts, and its fixed tokens. */
function partsOf({ content, reasoning_content, tool_calls }: ChatMessage): {
  texts: string[];
  tokens: number;
} {
  const texts = [reasoning_content ?? ""];
  let tokens = MESSAGE_TOKENS;
  if (typeof content === "string") texts.push(content);
  else
    for (const part of content ?? [])
      if (part.type === "text") texts.push(part.text);
      else tokens += IMAGE_TOKENS;
  for (const call of tool_calls ?? []) texts.push(call.function.name + call.function.arguments);
  return { texts, tokens };
}

/** Estimated prompt tokens of a chat body: the gateway has no tokenizers. */
export function promptTokens({ messages, tools }: ChatBody): number {
  const parts = messages.map(partsOf);
  const texts = parts.flatMap((part) => part.texts);
  if (tools) texts.push(JSON.stringify(tools));
  const chars = texts.reduce((sum, text) => sum + text.length, 0);
  const share = Math.min(1, COUNTED_MAX / chars);
  const textTokens = texts.reduce((sum, text) => sum + estimateTokens(text, text.length * share), 0);
  return parts.reduce((sum, { tokens }) => sum + tokens, textTokens + REPLY_TOKENS);
}
