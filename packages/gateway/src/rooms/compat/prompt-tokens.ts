import type { ChatBody, ChatMessage } from "./chat-body.ts";

export interface Estimator {
  estimateTokens(text: string): number;
  /** What one image or file is taken for, whatever its size. */
  imageTokens: number;
}

/** Role marks and separators around each message. */
const MESSAGE_TOKENS = 4;
/** What the answer is opened with. */
const REPLY_TOKENS = 3;

function messageTokens(
  { content, reasoning_content, tool_calls }: ChatMessage,
  estimator: Estimator,
): number {
  const { estimateTokens, imageTokens } = estimator;
  let tokens = MESSAGE_TOKENS + estimateTokens(reasoning_content ?? "");
  for (const part of typeof content === "string"
    ? [{ type: "text" as const, text: content }]
    : (content ?? [])) {
    tokens += part.type === "text" ? estimateTokens(part.text) : imageTokens;
  }
  for (const call of tool_calls ?? []) tokens += estimateTokens(call.function.name + call.function.arguments);
  return tokens;
}

/** Prompt tokens of a chat body, estimated: the gateway has no tokenizer of its backends' models. */
export function promptTokens(body: ChatBody, estimator: Estimator): number {
  const tools = body.tools ? estimator.estimateTokens(JSON.stringify(body.tools)) : 0;
  return body.messages.reduce(
    (sum, message) => sum + messageTokens(message, estimator),
    tools + REPLY_TOKENS,
  );
}
