import { isObject } from "../../../kernel/json.ts";
import { type ChatUsage, chatUsageOf, sumOf } from "../dialect.ts";

const tokensOf = (details: unknown, modality: string): unknown =>
  Array.isArray(details)
    ? details.find((part) => isObject(part) && part.modality === modality)?.tokenCount
    : undefined;

/** Gemini counts thoughts beside the answer, and tools' prompts beside the prompt; both are billed. */
export function chatUsage(usage: unknown): ChatUsage | null {
  if (!isObject(usage)) return null;
  const { promptTokenCount, toolUsePromptTokenCount, candidatesTokenCount, thoughtsTokenCount } = usage;
  return chatUsageOf({
    prompt: promptTokenCount == null ? undefined : sumOf(promptTokenCount, toolUsePromptTokenCount),
    completion: sumOf(candidatesTokenCount, thoughtsTokenCount),
    cached: usage.cachedContentTokenCount,
    reasoning: thoughtsTokenCount,
    audioInput: tokensOf(usage.promptTokensDetails, "AUDIO"),
    imageInput: tokensOf(usage.promptTokensDetails, "IMAGE"),
    audioOutput: tokensOf(usage.candidatesTokensDetails, "AUDIO"),
    imageOutput: tokensOf(usage.candidatesTokensDetails, "IMAGE"),
  });
}
