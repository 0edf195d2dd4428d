import { isObject } from "../../../kernel/json.ts";
import { type ChatUsage, chatUsageOf, sumOf } from "../dialect.ts";

const membersOf = (value: unknown): Record<string, unknown> => (isObject(value) ? value : {});

/** Anthropic counts what was read from and written to the cache beside the input, the chat form inside it. */
export function chatUsage(usage: unknown): ChatUsage | null {
  if (!isObject(usage)) return null;
  const { ephemeral_5m_input_tokens, ephemeral_1h_input_tokens: hour } = membersOf(usage.cache_creation);
  const cached = usage.cache_read_input_tokens;
  const written = usage.cache_creation_input_tokens ?? sumOf(ephemeral_5m_input_tokens, hour);
  return chatUsageOf({
    prompt_tokens: usage.input_tokens == null ? undefined : sumOf(usage.input_tokens, cached, written),
    completion_tokens: usage.output_tokens,
    prompt_tokens_details: {
      cached_tokens: cached,
      cache_write_tokens: written,
      cache_write_1h_tokens: hour,
    },
    completion_tokens_details: { reasoning_tokens: membersOf(usage.output_tokens_details).thinking_tokens },
    cost: usage.cost,
  });
}
