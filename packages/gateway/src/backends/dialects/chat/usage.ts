import { membersOf, tokenCount, type UsageParts } from "../../../kernel/usage-parts.ts";

/** `usage` of a chat completion, under the names that vendors give its parts; null where it has no counts. */
export function chatUsage(value: unknown): UsageParts | null {
  const usage = membersOf(value);
  const promptTokens = tokenCount(usage.prompt_tokens);
  const completion = tokenCount(usage.completion_tokens);
  if (promptTokens === undefined || completion === undefined) return null;
  const prompt = membersOf(usage.prompt_tokens_details ?? usage.prompt_token_details);
  const said = membersOf(usage.completion_tokens_details);
  const reasoningTokens = tokenCount(said.reasoning_tokens);
  // xAI counts reasoning beside the completion; its total tells.
  const isApart = reasoningTokens && usage.total_tokens === promptTokens + completion + reasoningTokens;
  return {
    promptTokens,
    completionTokens: isApart ? completion + reasoningTokens : completion,
    // DeepSeek, Moonshot and Mistral have names of their own.
    cachedTokens: tokenCount(
      prompt.cached_tokens,
      usage.prompt_cache_hit_tokens,
      usage.cached_tokens,
      usage.num_cached_tokens,
    ),
    // DashScope's and vLLM's names are the others.
    cacheWrite5mTokens: tokenCount(
      prompt.cache_write_tokens,
      prompt.cache_creation_input_tokens,
      prompt.created_cache_tokens,
    ),
    audioInputTokens: tokenCount(prompt.audio_tokens),
    imageInputTokens: tokenCount(prompt.image_tokens),
    reasoningTokens,
    audioOutputTokens: tokenCount(said.audio_tokens),
    imageOutputTokens: tokenCount(said.image_tokens),
  };
}
