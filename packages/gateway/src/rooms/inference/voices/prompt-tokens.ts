import { estimateTokens, IMAGE_TOKENS } from "../../metering/index.ts";
import type { ChatBody, ChatMessage } from "./chat-body.ts";

/** Role marks and separators around each message. */
const MESSAGE_TOKENS = 4;
/** The tokens that open the answer. */
const REPLY_TOKENS = 3;

function messageTokens({ content, reasoning_content, tool_calls }: ChatMessage): number {
  let tokens = MESSAGE_TOKENS + estimateTokens(reasoning_content ?? "");
  if (typeof content === "string") tokens += estimateTokens(content);
  else
    for (const part of content ?? [])
      tokens += part.type === "text" ? estimateTokens(part.text) : IMAGE_TOKENS;
  for (const call of tool_calls ?? []) tokens += estimateTokens(call.function.name + call.function.arguments);
  return tokens;
}

/** Prompt tokens of a chat body, estimated: the gateway has no tokenizers for its backends' models. */
export function promptTokens({ messages, tools }: ChatBody): number {
  const toolTokens = tools ? estimateTokens(JSON.stringify(tools)) : 0;
  return messages.reduce((sum, message) => sum + messageTokens(message), toolTokens + REPLY_TOKENS);
}
