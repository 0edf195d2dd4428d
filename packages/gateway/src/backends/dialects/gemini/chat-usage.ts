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
    prompt_tokens: promptTokenCount == null ? undefined : sumOf(promptTokenCount, toolUsePromptTokenCount),
    completion_tokens: sumOf(candidatesTokenCount, thoughtsTokenCount),
    prompt_tokens_details: {
      cached_tokens: usage.cachedContentTokenCount,
      audio_tokens: tokensOf(usage.promptTokensDetails, "AUDIO"),
      image_tokens: tokensOf(usage.promptTokensDetails, "IMAGE"),
    },
    completion_tokens_details: {
      reasoning_tokens: thoughtsTokenCount,
      audio_tokens: tokensOf(usage.candidatesTokensDetails, "AUDIO"),
      image_tokens: tokensOf(usage.candidatesTokensDetails, "IMAGE"),
    },
    service_tier: usage.serviceTier,
  });
}
