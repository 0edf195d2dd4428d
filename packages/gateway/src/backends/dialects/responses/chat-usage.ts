import { isObject } from "../../../kernel/json.ts";
import { type ChatUsage, chatUsageOf } from "../dialect.ts";

export function chatUsage(usage: unknown): ChatUsage | null {
  if (!isObject(usage)) return null;
  const input = isObject(usage.input_tokens_details) ? usage.input_tokens_details : {};
  const output = isObject(usage.output_tokens_details) ? usage.output_tokens_details : {};
  return chatUsageOf({
    prompt: usage.input_tokens,
    completion: usage.output_tokens,
    cached: input.cached_tokens,
    cacheWritten: input.cache_write_tokens,
    reasoning: output.reasoning_tokens,
    audioInput: input.audio_tokens,
    imageInput: input.image_tokens,
    audioOutput: output.audio_tokens,
    imageOutput: output.image_tokens,
  });
}
