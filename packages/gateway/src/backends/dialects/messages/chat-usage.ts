import { isObject } from "../../../kernel/json.ts";
import { type ChatUsage, chatUsageOf, sumOf } from "../dialect.ts";

const membersOf = (value: unknown): Record<string, unknown> => (isObject(value) ? value : {});

/** Anthropic counts what was read from and written to the cache beside the input, the chat form inside it. A compaction is billed beside all of it. */
export function chatUsage(usage: unknown): ChatUsage | null {
  if (!isObject(usage)) return null;
  const iterations = Array.isArray(usage.iterations) ? usage.iterations.map(membersOf) : [];
  const all = [usage, ...iterations.filter(({ type }) => type === "compaction")];
  const total = (name: string) => sumOf(...all.map((each) => each[name]));
  const writes = all.map((each) => membersOf(each.cache_creation));
  const hour = sumOf(...writes.map((each) => each.ephemeral_1h_input_tokens));
  const cached = total("cache_read_input_tokens");
  const written =
    total("cache_creation_input_tokens") ??
    sumOf(...writes.map((each) => each.ephemeral_5m_input_tokens), hour);
  return chatUsageOf({
    prompt_tokens: usage.input_tokens == null ? undefined : sumOf(total("input_tokens"), cached, written),
    completion_tokens: total("output_tokens"),
    prompt_tokens_details: {
      cached_tokens: cached,
      cache_write_tokens: written,
      cache_write_1h_tokens: hour,
    },
    completion_tokens_details: { reasoning_tokens: membersOf(usage.output_tokens_details).thinking_tokens },
    cost: usage.cost,
  });
}
