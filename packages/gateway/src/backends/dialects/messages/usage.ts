import { membersOf, tokenCount, type UsageParts } from "../../../kernel/usage-parts.ts";

/**
 * `usage` of a message; of a stream, that of `message_start` and then that of each `message_delta`, whose figures
 * replace it but do not say how long the cache keeps what was written. Null where nothing is counted. The three counts
 * of the input are disjoint.
 */
export function messagesUsage(...reports: readonly unknown[]): UsageParts | null {
  const usage: Record<string, unknown> = {};
  for (const report of reports)
    for (const [name, value] of Object.entries(membersOf(report)))
      if (value !== undefined && value !== null) usage[name] = value;
  const fresh = tokenCount(usage.input_tokens);
  const completionTokens = tokenCount(usage.output_tokens);
  if (fresh === undefined || completionTokens === undefined) return null;
  const cachedTokens = tokenCount(usage.cache_read_input_tokens) ?? 0;
  const written = tokenCount(usage.cache_creation_input_tokens) ?? 0;
  const hour = tokenCount(membersOf(usage.cache_creation).ephemeral_1h_input_tokens) ?? 0;
  const cacheWrite1hTokens = Math.min(hour, written);
  return {
    promptTokens: fresh + cachedTokens + written,
    completionTokens,
    cachedTokens,
    cacheWrite5mTokens: written - cacheWrite1hTokens,
    cacheWrite1hTokens,
    reasoningTokens: tokenCount(membersOf(usage.output_tokens_details).thinking_tokens),
  };
}
