import { describe, expect, test } from "bun:test";
import { type PriceList, priceChanges, readPriceList } from "../src/index.ts";

const LITELLM = {
  sample_spec: {
    litellm_provider: "one of …",
    mode: "chat",
    input_cost_per_token: 0,
    output_cost_per_token: 0,
  },
  "claude-x": {
    ...{ litellm_provider: "anthropic", mode: "chat", max_input_tokens: 200_000, max_output_tokens: 64_000 },
    ...{ input_cost_per_token: 3e-6, output_cost_per_token: 1.5e-5, cache_read_input_token_cost: 3e-7 },
    ...{ cache_creation_input_token_cost: 3.75e-6, cache_creation_input_token_cost_above_1hr: 6e-6 },
    ...{ input_cost_per_token_above_200k_tokens: 6e-6, output_cost_per_token_above_200k_tokens: 2.25e-5 },
    ...{ input_cost_per_token_batches: 1.5e-6, output_cost_per_token_batches: 7.5e-6 },
    deprecation_date: "2027-01-01",
  },
  "dashscope/tiered": {
    ...{ litellm_provider: "dashscope", mode: "chat" },
    tiered_pricing: [
      { range: [0, 256_000], input_cost_per_token: 5e-8, output_cost_per_token: 4e-7 },
      { range: [256_000, 1e6], input_cost_per_token: 2.5e-7, output_cost_per_token: 2e-6 },
    ],
  },
  "openrouter/anthropic/claude-x": {
    ...{
      litellm_provider: "openrouter",
      mode: "chat",
      input_cost_per_token: 9e-6,
      output_cost_per_token: 9e-6,
    },
  },
  embedder: { litellm_provider: "openai", mode: "embedding", input_cost_per_token: 2e-8 },
  listener: { litellm_provider: "openai", mode: "audio_transcription", input_cost_per_second: 0.0001 },
  unknown: { litellm_provider: "openai", mode: "chat" },
};

const MODELS_DEV = {
  anthropic: {
    id: "anthropic",
    models: {
      "claude-x": {
        cost: {
          ...{ input: 3, output: 15, cache_read: 0.3, cache_write: 3.75, reasoning: 20, input_audio: 4 },
          context_over_200k: { input: 6, output: 22.5 },
        },
        limit: { context: 200_000, output: 64_000 },
      },
      "claude-unpriced": { limit: { context: 1 } },
    },
  },
  openai: {
    models: {
      tiered: {
        cost: {
          input: 1,
          output: 2,
          tiers: [{ tier: { type: "context", size: 272_000 }, input: 2, output: 3 }],
        },
      },
    },
  },
};

const priceOf = ({ prices }: PriceList, model: string) =>
  prices.find((entry) => entry.model === model)?.price;

describe("price lists", () => {
  test("of LiteLLM are in dollars a token, with suffixes", () => {
    const list = readPriceList(LITELLM);
    expect(list.format).toBe("LiteLLM");
    expect(list.prices.map(({ model }) => model)).toEqual([
      ...["claude-x", "tiered", "anthropic/claude-x", "embedder", "listener"],
    ]);
    const parts = { cached_input: 0.3, cache_write: 3.75, cache_write_1h: 6 };
    expect(priceOf(list, "claude-x")).toEqual({
      ...{ input_usd: 3, output_usd: 15, max_output_tokens: 64_000, context_window: 200_000 },
      parts: {
        ...parts,
        long_prompts: [{ above_tokens: 200_000, ...parts, input: 6, output: 22.5 }],
        batch: { input: 1.5, output: 7.5 },
      },
    });
    expect(priceOf(list, "tiered")).toEqual({
      ...{ input_usd: 0.05, output_usd: 0.4 },
      parts: { long_prompts: [{ above_tokens: 256_000, input: 0.25, output: 2 }] },
    });
    expect(priceOf(list, "embedder")).toEqual({ input_usd: 0.02, output_usd: 0 });
    expect(priceOf(list, "listener")).toEqual({ per_second_usd: 0.0001 });
    expect(list.prices[0]?.ends).toBe("2027-01-01");
  });

  test("of models.dev are in dollars a million, by provider", () => {
    const list = readPriceList(MODELS_DEV);
    expect(list.format).toBe("models.dev");
    const parts = { cached_input: 0.3, cache_write: 3.75, cache_write_1h: 6, reasoning: 20, audio_input: 4 };
    expect(priceOf(list, "claude-x")).toEqual({
      ...{ input_usd: 3, output_usd: 15, max_output_tokens: 64_000, context_window: 200_000 },
      parts: { ...parts, long_prompts: [{ above_tokens: 200_000, ...parts, input: 6, output: 22.5 }] },
    });
    expect(priceOf(list, "tiered")?.parts?.long_prompts).toEqual([
      { above_tokens: 272_000, input: 2, output: 3 },
    ]);
    expect(priceOf(list, "claude-unpriced")).toBeUndefined();
  });

  test("that are something else are refused", () => {
    for (const json of [null, [], 5, {}, { a: { b: 1 } }])
      expect(() => readPriceList(json)).toThrow("neither");
  });

  test("change what can be called and costs something else: the maker's entry before a reseller's", () => {
    const none = { output_usd: null, parts: {}, unpriced: true, not_billed: false, source: null };
    const now = { capabilities: ["chat"], ...none };
    const list = readPriceList(LITELLM);
    const changes = priceChanges(list, [
      { model: "models/Claude-X", input_usd: null, ...now },
      { model: "anthropic/claude-x", input_usd: null, ...now },
      { model: "embedder", ...now, input_usd: 0.02, output_usd: 0 },
      { model: "homemade", input_usd: null, ...now },
      { model: "resellers/claude-x", input_usd: null, ...now, unpriced: false, not_billed: true },
    ]);
    expect(changes.map(({ price, from }) => [price.model, price.input_usd, from])).toEqual([
      ["models/Claude-X", 3, "anthropic/claude-x"],
      ["anthropic/claude-x", 3, "anthropic/claude-x"],
    ]);
    const resold = priceChanges(list, [{ model: "claude-x", input_usd: null, ...now }], "openrouter");
    expect(resold[0]?.price.input_usd).toBe(9);
  });
});
