/** A prompt cache as the vendors have one: what begins with the same bytes as an earlier prompt is read from it. */
import { createHash } from "node:crypto";

const BYTES_PER_TOKEN = 4;

/** A stand-in for a tokenizer: four UTF-8 bytes are a token. */
export const tokensOf = (text: string): number => Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN);

/** One key for every block: equal only if that block and all before it are equal. */
export function prefixKeys(scope: string, blocks: readonly string[]): string[] {
  let key = scope;
  return blocks.map((block) => {
    key = createHash("sha256").update(key).update("\0").update(block).digest("base64");
    return key;
  });
}

export class PrefixCache {
  readonly #entries = new Map<string, { expiresAtMs: number; ttlMs: number }>();

  constructor(readonly nowMs: () => number) {}

  has(key: string): boolean {
    return (this.#entries.get(key)?.expiresAtMs ?? 0) > this.nowMs();
  }

  /** Its time begins anew with every use. */
  use(key: string): void {
    const entry = this.#entries.get(key);
    if (entry) entry.expiresAtMs = this.nowMs() + entry.ttlMs;
  }

  write(key: string, ttlMs: number): void {
    this.#entries.set(key, { ttlMs, expiresAtMs: this.nowMs() + ttlMs });
  }
}

export interface StepCacheOptions {
  /** Model, account and whatever else separates caches. */
  scope: string;
  prompt: string;
  minTokens: number;
  stepTokens: number;
  ttlMs: number;
}

/** A cache without breakpoints, as OpenAI and Gemini have it: the longest known prefix, in whole steps. */
export function readBySteps(cache: PrefixCache, options: StepCacheOptions) {
  const { scope, prompt, minTokens, stepTokens, ttlMs } = options;
  const bytes = Buffer.from(prompt);
  const promptTokens = Math.ceil(bytes.length / BYTES_PER_TOKEN);
  const ends: number[] = [];
  for (let end = minTokens; end <= promptTokens; end += stepTokens) ends.push(end);
  const blocks = ends.map((end, index) =>
    bytes.toString("latin1", (ends[index - 1] ?? 0) * BYTES_PER_TOKEN, end * BYTES_PER_TOKEN),
  );
  const keys = prefixKeys(scope, blocks);
  const hit = keys.findLastIndex((key) => cache.has(key));
  const cachedTokens = ends[hit] ?? 0;
  return {
    promptTokens,
    cachedTokens,
    writtenTokens: (ends.at(-1) ?? 0) - cachedTokens,
    /** To be called when the answer begins. */
    commit: () => {
      for (const key of keys) cache.write(key, ttlMs);
    },
  };
}
