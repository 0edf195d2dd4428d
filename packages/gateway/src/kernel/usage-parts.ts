import { isObject } from "./json.ts";

/** More than any request can have; a larger figure is not believed. */
const TOKENS_MAX = 10_000_000;

/** Tokens of one request as an upstream reports them. All parts are inside of `promptTokens` and `completionTokens`. */
export interface UsageParts {
  promptTokens: number;
  completionTokens: number;
  /** Read from the upstream's cache. */
  cachedTokens?: number;
  /** Written to it, to be kept for five minutes or whatever is usual, and for an hour. */
  cacheWrite5mTokens?: number;
  cacheWrite1hTokens?: number;
  audioInputTokens?: number;
  imageInputTokens?: number;
  reasoningTokens?: number;
  audioOutputTokens?: number;
  imageOutputTokens?: number;
}

/** The first of these values that is there; undefined if it is not a number of tokens. */
export function tokenCount(...values: readonly unknown[]): number | undefined {
  const value = values.find((given) => given !== undefined && given !== null);
  const isCount = Number.isInteger(value) && (value as number) >= 0 && (value as number) <= TOKENS_MAX;
  return isCount ? (value as number) : undefined;
}

export const membersOf = (value: unknown): Record<string, unknown> => (isObject(value) ? value : {});
