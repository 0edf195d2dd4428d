import { describe, expect, test } from "bun:test";
import catalogue from "../../src/rooms/billing/catalogue.json" with { type: "json" };
import { BUILT_IN_PRICES } from "../../src/rooms/billing/price-schema.ts";
import { Pricing } from "../../src/rooms/billing/pricing.ts";

const pricing = new Pricing(BUILT_IN_PRICES);
const usd = (model: string, usage: object) => {
  const nano = pricing.bill(model, { promptTokens: 0, completionTokens: 0, ...usage }).costNanoUsd;
  return nano === null ? null : nano / 1e9;
};
const M = 1_000_000;

describe("the built-in catalogue", () => {
  test("has current models with their parts, and says where from and of when", () => {
    expect(BUILT_IN_PRICES.length).toBeGreaterThanOrEqual(300);
    expect(catalogue.source).toContain("litellm");
    expect(catalogue.date).toMatch(/^\d{4}-\d\d-\d\d$/);
    expect(BUILT_IN_PRICES.filter(({ cached_input }) => cached_input !== undefined).length).toBeGreaterThan(
      100,
    );
    const matches = BUILT_IN_PRICES.map(({ match }) => match);
    expect(new Set(matches).size).toBe(matches.length);
    expect(matches.every((match) => match === match.toLowerCase())).toBe(true);
  });

  test("prices the parts of the vendors' models", () => {
    expect(usd("claude-opus-5-5", { promptTokens: M, cachedTokens: M })).toBe(0.2);
    expect(usd("claude-opus-5-5", { promptTokens: M, cacheWrite5mTokens: M })).toBe(5);
    expect(usd("claude-opus-5-5", { promptTokens: M, cacheWrite1hTokens: M })).toBe(8);
    expect(usd("gpt-5.6-sol", { promptTokens: 272_000, cachedTokens: 272_000 })).toBe(0.1088);
    expect(usd("gpt-5.6-sol", { promptTokens: M, cachedTokens: M, completionTokens: M })).toBe(30.8);
    expect(usd("gemini-2.5-pro", { promptTokens: M, cachedTokens: M })).toBe(0.25);
    expect(usd("gpt-5", { promptTokens: M, completionTokens: M })).toBe(11.25);
    expect(usd("qwen-flash", { promptTokens: 256_001 })).toBe(0.06400025);
  });

  test("is found behind the prefixes that resellers and clouds put before a name", () => {
    const newest = [
      "claude-opus-5-5",
      "claude-sonnet-5-5",
      "claude-haiku-5-5",
      "gpt-6.1-sol",
      "gpt-5.6-luna",
    ];
    for (const id of newest)
      for (const prefix of ["anthropic.", "us.anthropic.", "openai/", "models/", "anthropic/"])
        expect([prefix, id, pricing.priceOf(prefix + id)]).toEqual([prefix, id, pricing.priceOf(id)]);
  });

  test("has nothing for what people run themselves", () => {
    for (const id of [
      ...[
        "deepseek-r1:8b",
        "llama3.3:70b",
        "qwen3:8b",
        "qwen3-32b",
        "mistral-small:24b",
        "gemma3:12b",
        "phi4",
      ],
      ...[
        "command-r:35b",
        "meta-llama/Llama-3.3-70B-Instruct",
        "mistralai/Devstral-Small-2507",
        "foo1",
        "solo3",
      ],
      ...["Qwen/Qwen3-235B-A22B", "deepseek-coder:6.7b", "mixtral:8x7b", "mistral:7b", "starcoder2:15b"],
    ])
      expect([id, pricing.priceOf(id)]).toEqual([id, { input: null, output: null }]);
  });
});
