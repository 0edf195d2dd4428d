import { membersOf, tokenCount, type UsageParts } from "../../../kernel/usage-parts.ts";

/** `usage` of a response; null where it has no counts. */
export function responsesUsage(value: unknown): UsageParts | null {
  const usage = membersOf(value);
  const promptTokens = tokenCount(usage.input_tokens);
  const completionTokens = tokenCount(usage.output_tokens);
  if (promptTokens === undefined || completionTokens === undefined) return null;
  const prompt = membersOf(usage.input_tokens_details);
  const said = membersOf(usage.output_tokens_details);
  return {
    promptTokens,
    completionTokens,
    cachedTokens: tokenCount(prompt.cached_tokens),
    cacheWrite5mTokens: tokenCount(prompt.cache_write_tokens),
    audioInputTokens: tokenCount(prompt.audio_tokens),
    imageInputTokens: tokenCount(prompt.image_tokens),
    reasoningTokens: tokenCount(said.reasoning_tokens),
    audioOutputTokens: tokenCount(said.audio_tokens),
    imageOutputTokens: tokenCount(said.image_tokens),
  };
}
