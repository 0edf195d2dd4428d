import { isObject } from "./json.ts";

export const REQUEST_TOKENS_MAX = 10_000_000;

export const isPlausible = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) <= REQUEST_TOKENS_MAX;

/** Tokens of one request as an upstream reports them. All others are parts of `promptTokens` or `completionTokens`. */
export interface UsageParts {
  promptTokens: number;
  completionTokens: number;
  cachedTokens?: number;
  /** Written to the cache for five minutes or the vendor's default, and for an hour. */
  cacheWrite5mTokens?: number;
  cacheWrite1hTokens?: number;
  audioInputTokens?: number;
  imageInputTokens?: number;
  reasoningTokens?: number;
  audioOutputTokens?: number;
  imageOutputTokens?: number;
  /** Charged at batch rates: in a batch, or in a slower tier. */
  isBatch?: boolean;
}

export function isConsistent(usage: UsageParts): boolean {
  const { promptTokens, completionTokens, cachedTokens = 0, cacheWrite5mTokens = 0 } = usage;
  const { cacheWrite1hTokens = 0, audioInputTokens = 0, imageInputTokens = 0 } = usage;
  const { reasoningTokens = 0, audioOutputTokens = 0, imageOutputTokens = 0 } = usage;
  return (
    cachedTokens + cacheWrite5mTokens + cacheWrite1hTokens <= promptTokens &&
    audioInputTokens + imageInputTokens <= promptTokens &&
    reasoningTokens + audioOutputTokens + imageOutputTokens <= completionTokens
  );
}

const objectOf = (value: unknown): Record<string, unknown> | null => (isObject(value) ? value : null);

function tokenCount(...values: readonly unknown[]): number | undefined {
  const value = values.find((given) => given !== undefined && given !== null);
  return Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : undefined;
}

type Whole = Pick<UsageParts, "promptTokens" | "completionTokens">;

/** Reads the parts of a `usage` under all vendors' names for them; only `whole` if it has none, or if they do not add up. */
export function partsIn(usage: Record<string, unknown>, whole: Whole): UsageParts {
  const prompt = objectOf(
    usage.prompt_tokens_details ??
      usage.prompt_token_details ??
      usage.input_tokens_details ??
      usage.input_token_details,
  );
  const said = objectOf(
    usage.completion_tokens_details ?? usage.output_tokens_details ?? usage.output_token_details,
  );
  // Also the names of DeepSeek, Moonshot and Mistral.
  const cachedTokens = tokenCount(
    prompt?.cached_tokens,
    usage.prompt_cache_hit_tokens,
    usage.cached_tokens,
    usage.num_cached_tokens,
  );
  if (!prompt && !said && cachedTokens === undefined) return whole;
  // The last two names are those of DashScope and vLLM.
  const written = tokenCount(
    prompt?.cache_write_tokens,
    prompt?.cache_creation_input_tokens,
    prompt?.created_cache_tokens,
  );
  const hour = tokenCount(prompt?.cache_write_1h_tokens) ?? 0;
  const reasoningTokens = tokenCount(said?.reasoning_tokens);
  const { promptTokens, completionTokens: completion } = whole;
  // xAI does not count reasoning in the completion; the total shows it.
  const isApart = reasoningTokens && usage.total_tokens === promptTokens + completion + reasoningTokens;
  const parts = {
    promptTokens,
    completionTokens: isApart ? completion + reasoningTokens : completion,
    cachedTokens,
    cacheWrite5mTokens: written && written - Math.min(hour, written),
    cacheWrite1hTokens: written && Math.min(hour, written),
    audioInputTokens: tokenCount(prompt?.audio_tokens),
    imageInputTokens: tokenCount(prompt?.image_tokens),
    reasoningTokens,
    audioOutputTokens: tokenCount(said?.audio_tokens),
    imageOutputTokens: tokenCount(said?.image_tokens),
  };
  return isConsistent(parts) ? parts : { promptTokens, completionTokens: parts.completionTokens };
}
