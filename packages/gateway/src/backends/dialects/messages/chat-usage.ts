import { isObject } from "../../../kernel/json.ts";
import { type ChatUsage, chatUsageOf, sumOf } from "../dialect.ts";

/** Anthropic counts what was read from and written to the cache beside the input, the chat form inside it. */
export function chatUsage(usage: unknown): ChatUsage | null {
  if (!isObject(usage)) return null;
  const { input_tokens, cache_read_input_tokens: cached, cache_creation_input_tokens: written } = usage;
  const hour = isObject(usage.cache_creation) ? usage.cache_creation.ephemeral_1h_input_tokens : undefined;
  const details = isObject(usage.output_tokens_details) ? usage.output_tokens_details : {};
  return chatUsageOf({
    prompt: input_tokens == null ? undefined : sumOf(input_tokens, cached, written),
    completion: usage.output_tokens,
    cached,
    cacheWritten: written,
    cacheWrittenForHour: hour,
    reasoning: details.thinking_tokens,
  });
}
