import { isObject } from "../../../kernel/json.ts";
import { type ChatUsage, chatUsageOf } from "../dialect.ts";

/** The parts have the same names as in chats. */
export function chatUsage({ usage, service_tier }: Record<string, unknown>): ChatUsage | null {
  if (!isObject(usage)) return null;
  return chatUsageOf({
    prompt_tokens: usage.input_tokens,
    completion_tokens: usage.output_tokens,
    prompt_tokens_details: usage.input_tokens_details,
    completion_tokens_details: usage.output_tokens_details,
    cost: usage.cost,
    service_tier,
  });
}
