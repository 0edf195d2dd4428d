import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { estimatePromptTokens, estimateTokens, IMAGE_TOKENS } from "../../src/rooms/metering/index.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

describe("estimateTokens", () => {
  // Counted with the o200k vocabulary.
  const counted: [string, number][] = [
    ["The quick brown fox jumps over the lazy dog, and the gateway counts what it said.", 18],
    ["人工智能是计算机科学的一个分支，它企图了解智能的实质。", 19],
    ["대한민국은 동아시아의 한반도 남부에 위치한 나라이다.", 18],
    [
      '{"id":"chatcmpl-1","object":"chat.completion","usage":{"prompt_tokens":12,"completion_tokens":34}}',
      27,
    ],
  ];
  for (const [text, tokens] of counted) {
    test(`is within a third of ${tokens} for ${text.slice(0, 24)}…`, () => {
      expect(estimateTokens(text)).toBeGreaterThan(tokens * 0.67);
      expect(estimateTokens(text)).toBeLessThan(tokens * 1.34);
    });
  }

  test("counts encoded data as such", () => {
    const base64 = crypto.getRandomValues(new Uint8Array(3000)).toBase64();
    expect(estimateTokens(base64)).toBeGreaterThan(base64.length * 0.6);
  });

  test("is 0 for nothing only, and adding text never lowers it much", () => {
    expect(estimateTokens("")).toBe(0);
    fc.assert(
      fc.property(fc.string({ unit: "binary", minLength: 1 }), fc.string({ unit: "binary" }), (a, b) => {
        expect(estimateTokens(a)).toBeGreaterThan(0);
        expect(estimateTokens(a + b)).toBeGreaterThanOrEqual(
          Math.max(estimateTokens(a), estimateTokens(b)) - 1,
        );
      }),
      { numRuns: 30 },
    );
  });
});

describe("estimatePromptTokens", () => {
  test("is a quarter of the bytes", () => {
    expect(estimatePromptTokens(bytes("x".repeat(4000)))).toBe(1000);
    expect(estimatePromptTokens(bytes(""))).toBe(0);
  });

  test("takes an embedded image for one image, not for its bytes", () => {
    const image = `data:image/png;base64,${"A".repeat(400_000)}`;
    const body = JSON.stringify({
      messages: [{ content: [{ image_url: { url: image } }, { text: "what is it?" }] }],
    });
    const estimate = estimatePromptTokens(bytes(body));
    expect(estimate).toBeGreaterThan(IMAGE_TOKENS);
    expect(estimate).toBeLessThan(IMAGE_TOKENS + 100);
    expect(estimatePromptTokens(bytes(JSON.stringify([image, image])))).toBeGreaterThan(2 * IMAGE_TOKENS);
  });

  test("ends with a body whose data URL is cut off", () => {
    expect(estimatePromptTokens(bytes(`{"url":"data:image/png;base64,AAAA`))).toBeGreaterThan(IMAGE_TOKENS);
  });
});
