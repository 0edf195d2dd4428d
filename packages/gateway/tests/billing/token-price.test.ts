import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { UsageParts } from "../../src/kernel/usage-parts.ts";
import { Pricing } from "../../src/rooms/billing/pricing.ts";
import { costOf, tokenPrice } from "../../src/rooms/billing/token-price.ts";

const CLAUDE = {
  ...{ match: "claude", input: 5, output: 25, cached_input: 0.5, cache_write: 6.25, cache_write_1h: 10 },
  ...{ reasoning: 30, audio_input: 50, audio_output: 100, image_input: 7, image_output: 40 },
  batch: { input: 2.5, output: 12.5 },
  long_prompts: [
    { above_tokens: 200_000, input: 10, output: 37.5, cached_input: 1 },
    { above_tokens: 500_000, input: 20, output: 75 },
  ],
};
const price = tokenPrice(CLAUDE)!;
const cost = (usage: Partial<UsageParts>) =>
  costOf(price, { promptTokens: 0, completionTokens: 0, ...usage });

describe("the price of a request", () => {
  test("is the sum of its parts, each at its own rate", () => {
    expect(cost({ promptTokens: 100, completionTokens: 10 })).toBe(100 * 5_000 + 10 * 25_000);
    expect(cost({ promptTokens: 100, cachedTokens: 90 })).toBe(10 * 5_000 + 90 * 500);
    expect(
      cost({ promptTokens: 100, cachedTokens: 50, cacheWrite5mTokens: 20, cacheWrite1hTokens: 30 }),
    ).toBe(50 * 500 + 20 * 6_250 + 30 * 10_000);
    expect(
      cost({ completionTokens: 100, reasoningTokens: 40, audioOutputTokens: 10, imageOutputTokens: 5 }),
    ).toBe(45 * 25_000 + 40 * 30_000 + 10 * 100_000 + 5 * 40_000);
    expect(cost({ promptTokens: 100, audioInputTokens: 10, imageInputTokens: 20 })).toBe(
      70 * 5_000 + 10 * 50_000 + 20 * 7_000,
    );
  });

  test("of sound that is cached: as fresh", () => {
    expect(cost({ promptTokens: 100, cachedTokens: 100, audioInputTokens: 60 })).toBe(60 * 50_000 + 40 * 500);
  });

  test("is that of a long prompt for the whole request", () => {
    expect(cost({ promptTokens: 200_000 })).toBe(200_000 * 5_000);
    expect(cost({ promptTokens: 200_001, cachedTokens: 1, completionTokens: 2 })).toBe(
      200_000 * 10_000 + 1_000 + 2 * 37_500,
    );
    expect(cost({ promptTokens: 500_001 })).toBe(500_001 * 20_000);
  });

  test("of a batch is its own; a price without one has the usual", () => {
    const usage = { promptTokens: 10, completionTokens: 10, cachedTokens: 5, isBatch: true };
    expect(cost(usage)).toBe(5 * 2_500 + 5 * 250 + 10 * 12_500);
    const plain = tokenPrice({ match: "x", input: 5, output: 25 })!;
    expect(costOf(plain, usage)).toBe(10 * 5_000 + 10 * 25_000);
  });

  test("of a batch saves as much on each part, and on long prompts", () => {
    const batch = { isBatch: true };
    expect(cost({ promptTokens: 10, cacheWrite1hTokens: 10, ...batch })).toBe(10 * 5_000);
    expect(cost({ completionTokens: 10, reasoningTokens: 10, ...batch })).toBe(10 * 15_000);
    expect(cost({ promptTokens: 200_001, cachedTokens: 1, completionTokens: 2, ...batch })).toBe(
      200_000 * 5_000 + 500 + 2 * 18_750,
    );
    const own = tokenPrice({ ...CLAUDE, batch: { input: 2.5, output: 12.5, cached_input: 0.4 } })!;
    expect(costOf(own, { promptTokens: 10, completionTokens: 0, cachedTokens: 10, ...batch })).toBe(10 * 400);
    const free = tokenPrice({ match: "x", input: 0, output: 2, batch: { input: 0, output: 1 } })!;
    expect(costOf(free, { promptTokens: 10, completionTokens: 10, ...batch })).toBe(10 * 1_000);
  });

  test("is the plain one where the parts contradict each other", () => {
    const plain = 100 * 5_000 + 10 * 25_000;
    for (const parts of [
      { cachedTokens: 101 },
      { cachedTokens: 60, cacheWrite5mTokens: 41 },
      { cacheWrite1hTokens: 101 },
      { audioInputTokens: 60, imageInputTokens: 41 },
      { cachedTokens: 90, reasoningTokens: 11 },
      { audioOutputTokens: 6, reasoningTokens: 5 },
    ])
      expect(cost({ promptTokens: 100, completionTokens: 10, ...parts })).toBe(plain);
  });

  test("follows the contract's rule without such rates, whatever the parts are", () => {
    const pricing = new Pricing([{ match: "m", input: 2, output: 10 }]);
    fc.assert(
      fc.property(
        fc.record({ promptTokens: fc.nat(1e7), completionTokens: fc.nat(1e7) }),
        fc.record({
          cachedTokens: fc.nat(1e7),
          reasoningTokens: fc.nat(1e7),
          cacheWrite1hTokens: fc.nat(1e7),
        }),
        (usage, parts) => {
          const contract = usage.promptTokens * 2_000 + usage.completionTokens * 10_000;
          expect(pricing.bill("m", { ...usage, ...parts }).costNanoUsd).toBe(contract);
        },
      ),
    );
  });

  test("counts every token exactly once", () => {
    const flat = tokenPrice({ match: "x", input: 0.001, output: 0.001 })!;
    fc.assert(
      fc.property(fc.array(fc.nat(1e6), { minLength: 10, maxLength: 10 }), (n) => {
        const [promptTokens = 0, completionTokens = 0] = n;
        const usage = {
          ...{ promptTokens, completionTokens, cachedTokens: n[2], cacheWrite5mTokens: n[3] },
          ...{ cacheWrite1hTokens: n[4], audioInputTokens: n[5], imageInputTokens: n[6] },
          ...{ reasoningTokens: n[7], audioOutputTokens: n[8], imageOutputTokens: n[9] },
        };
        expect(costOf(flat, usage)).toBe(promptTokens + completionTokens);
      }),
    );
  });
});
