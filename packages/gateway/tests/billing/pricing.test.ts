import { afterEach, describe, expect, test } from "bun:test";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { bootGateway } from "@model-gateway/testing/gateway.ts";
import fc from "fast-check";
import { createLog } from "../../src/kernel/log.ts";
import { FALLBACK_VIDEO_PRICE, videoCostNanoUsd } from "../../src/rooms/billing/index.ts";
import { BUILT_IN_PRICES } from "../../src/rooms/billing/price-schema.ts";
import { Pricing } from "../../src/rooms/billing/pricing.ts";
import { readPricingFile, watchPricingFile } from "../../src/rooms/billing/pricing-file.ts";

const MILLION = { promptTokens: 1_000_000, completionTokens: 1_000_000 };
const dirs: string[] = [];
function temporaryFile(content: string): string {
  const dir = mkdtempSync(join(tmpdir(), "pricing-test-"));
  dirs.push(dir);
  const path = join(dir, "prices.json");
  writeFileSync(path, content);
  return path;
}
afterEach(() => {
  for (const dir of dirs.splice(0)) rmSync(dir, { recursive: true, force: true });
});

describe("prices", () => {
  const pricing = new Pricing(BUILT_IN_PRICES);

  test("of administrators go by the whole id, then by the longest beginning, before all others", () => {
    const own = new Pricing(BUILT_IN_PRICES);
    const price = (match: string, input: number) => ({ match, input, output: 0 });
    own.setByAdministrators([
      price("openai/*", 1),
      price("openai/gpt-4o*", 2),
      price("openai/gpt-4o-mini", 3),
    ]);
    const inputOf = (model: string) => own.priceOf(model, false).input;
    expect(inputOf("openai/else")).toBe(1);
    expect(inputOf("OpenAI/gpt-4o-2026")).toBe(2);
    expect(inputOf("openai/gpt-4o-mini")).toBe(3);
    expect(inputOf("gpt-4o")).toBe(2.5);
    expect(own.isSetByAdministrators("openai/else")).toBe(true);
    expect(own.isSetByAdministrators("gpt-4o")).toBe(false);
  });

  test("match a part of the lowercased id, the longest first", () => {
    const usd = (model: string) => {
      // Few enough not to be a long prompt.
      const nano = pricing.bill(model, { promptTokens: 100_000, completionTokens: 100_000 }).costNanoUsd;
      return nano === null ? null : nano / 1e8;
    };
    expect(usd("gpt-4o")).toBe(12.5);
    expect(usd("gpt-4o-mini")).toBe(0.75);
    expect(usd("openai/GPT-4o-Mini-2026-01-01")).toBe(0.75);
    expect(usd("MiniMax-M3")).toBe(1.5);
    expect(usd("claude-opus-5-5")).toBe(24);
    expect(usd("claude-opus-5")).toBe(30);
    expect(usd("gpt-5.6")).toBe(24);
    expect(usd("gpt-5.6-luna")).toBe(1.4);
    expect(usd("text-embedding-3-small")).toBe(0.02);
    expect(usd("my-own-llama")).toBeNull();
    expect(usd("")).toBeNull();
  });

  test("costs are exact in nanodollars", () => {
    expect(pricing.bill("gpt-4o-mini", { promptTokens: 1, completionTokens: 0 }).costNanoUsd).toBe(150);
    expect(pricing.bill("gpt-4o-mini", { promptTokens: 1000, completionTokens: 500 }).costNanoUsd).toBe(
      450_000,
    );
    expect(pricing.bill("deepseek-v4-flash", { promptTokens: 3, completionTokens: 7 }).costNanoUsd).toBe(
      5280,
    );
    expect(pricing.bill("gpt-4o", { promptTokens: 0, completionTokens: 0 }).costNanoUsd).toBe(0);
    const price = new Pricing([{ match: "x", input: 0.0005, output: 0 }]);
    // Half a nanodollar is rounded up.
    expect(price.bill("x", { promptTokens: 1, completionTokens: 0 }).costNanoUsd).toBe(1);
    fc.assert(
      fc.property(fc.nat(2_000_000_000), fc.nat(2_000_000_000), (promptTokens, completionTokens) => {
        const exact =
          (BigInt(promptTokens) * 5_000_000n + BigInt(completionTokens) * 30_000_000n + 500n) / 1000n;
        expect(pricing.bill("gpt-5.5", { promptTokens, completionTokens }).costNanoUsd).toBe(Number(exact));
      }),
    );
  });

  test("the operator's go before the built-in ones", () => {
    const own = new Pricing(BUILT_IN_PRICES, [{ match: "GPT", input: 1, output: 1 }]);
    expect(own.bill("gpt-4o-mini", MILLION).costNanoUsd).toBe(2e9);
    expect(own.bill("claude-opus-5", MILLION).costNanoUsd).toBe(30e9);
    own.setOperator([]);
    expect(own.bill("gpt-4o-mini", MILLION).costNanoUsd).toBe(0.75e9);
  });
});

describe("the pricing file", () => {
  test("is refused with the field that is wrong", () => {
    const wrong: [string, string][] = [
      ["{", "is not JSON"],
      ["[]", "does not have the form"],
      ['{"prices": [{"match": "a", "input": -1, "output": 1}]}', "prices.0.input"],
      ['{"prices": [{"match": "", "input": 1, "output": 1}]}', "prices.0.match"],
      ['{"prices": [{"match": "a", "input": 1}]}', "prices.0.output"],
      ['{"prices": [{"match": "a"}]}', "per_image"],
      ['{"prices": [{"match": "a", "per_call": -1}]}', "prices.0.per_call"],
      ['{"prices": [{"match": "a", "per_image": {}}]}', "prices.0.per_image"],
      ['{"prices": [{"match": "a", "per_image": {"1024 x 1024": 1}}]}', "prices.0.per_image"],
      ['{"prices": [{"match": "a", "input": 1, "output": 1, "cached": 2}]}', "cached"],
      [
        '{"prices": [{"match": "a", "input": 1, "output": 1}, {"match": "A", "input": 2, "output": 1}]}',
        'two prices for "a"',
      ],
    ];
    for (const [content, message] of wrong)
      expect(() => readPricingFile(temporaryFile(content))).toThrow(message);
    expect(() => readPricingFile("/nowhere/prices.json")).toThrow("/nowhere/prices.json cannot be read");
  });

  test("stops the start when it is wrong", async () => {
    const pricingFile = temporaryFile('{"prices": 1}');
    expect(bootGateway({ config: { pricingFile } })).rejects.toThrow("the pricing file");
  });

  test("is read again when it changes; a wrong one changes nothing", () => {
    const path = temporaryFile('{"prices": []}');
    const clock = new ManualClock();
    const lines: string[] = [];
    const log = createLog({ level: "info", format: "json", write: (line) => lines.push(line) });
    const seen: number[] = [];
    const end = watchPricingFile({ path, clock, log, onChange: ({ prices }) => seen.push(prices.length) });
    clock.advance(10_000);
    expect(seen).toEqual([]);
    writeFileSync(path, '{"prices": [{"match": "a", "input": 1, "output": 1}]}');
    clock.advance(2_000);
    expect(seen).toEqual([1]);
    writeFileSync(path, '{"prices": [{"match": "a"');
    clock.advance(2_000);
    rmSync(path);
    clock.advance(2_000);
    expect(seen).toEqual([1]);
    expect(lines.filter((line) => line.includes("keeping the previous prices"))).toHaveLength(2);
    // Put in place as editors and orchestrators do it.
    writeFileSync(`${path}.new`, '{"prices": []}');
    renameSync(`${path}.new`, path);
    clock.advance(2_000);
    expect(seen).toEqual([1, 0]);
    end();
  });
});

describe("video costs", () => {
  const size = { durationSeconds: 6, frames: 144, clips: 1, shortSides: [720], sizeUnclear: false };
  const usd = (price: Partial<typeof FALLBACK_VIDEO_PRICE>, change: Partial<typeof size> = {}) =>
    videoCostNanoUsd({ ...FALLBACK_VIDEO_PRICE, ...price }, { ...size, ...change }) / 1e9;

  test("per call: the base price", () => {
    expect(usd({ mode: "per_call", base_price: 0.35 })).toBe(0.35);
  });
  test("per frame: base price and frames", () => {
    expect(usd({ mode: "per_frame", base_price: 0.1, price_per_frame: 0.002 })).toBe(0.388);
  });
  test("per second and resolution: the short side chooses the coefficient", () => {
    const price = {
      base_price: 0.05,
      price_per_second: 0.1,
      resolution_coeff: { "720": 1.5, "1080": 2, "*": 0.5 },
    };
    expect(usd(price)).toBe(0.95);
    expect(usd(price, { shortSides: [1080] })).toBe(1.25);
    expect(usd(price, { shortSides: [512] })).toBe(0.35);
    expect(usd(price, { shortSides: [] })).toBe(0.35);
    expect(usd(price, { shortSides: [512, 1080, 720] })).toBe(1.25);
    expect(usd(price, { shortSides: [512], sizeUnclear: true })).toBe(1.25);
    expect(usd(price, { clips: 3 })).toBe(2.85);
  });
  test("a short side that is not a key: the fallback below the smallest, else the key above, or the largest", () => {
    const price = { price_per_second: 0.1, resolution_coeff: { "720": 2, "1080": 4, "480": 1, "*": 0.5 } };
    const coefficient = (side: number) => Math.round((usd(price, { shortSides: [side] }) / 0.6) * 10) / 10;
    const expected = {
      16: 0.5,
      479: 0.5,
      480: 1,
      481: 2,
      719.5: 2,
      720: 2,
      721: 4,
      1072: 4,
      1080: 4,
      1088: 4,
      16384: 4,
    };
    for (const [side, of] of Object.entries(expected))
      expect([side, coefficient(Number(side))]).toEqual([side, of]);
    expect(usd({ price_per_second: 0.1, resolution_coeff: { "720": 2 } }, { shortSides: [100] })).toBe(0.6);
  });
  test("a model without a row: half a cent a second", () => {
    expect(usd({})).toBe(0.03);
    expect(usd({ resolution_coeff: {} })).toBe(0.03);
  });
});
