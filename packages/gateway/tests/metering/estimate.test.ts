import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  estimatePromptTokens,
  estimateTokens,
  IMAGE_TOKENS,
  samplePromptTokens,
} from "../../src/rooms/metering/index.ts";

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
  const body = (content: unknown) => bytes(JSON.stringify({ messages: [{ role: "user", content }] }));
  const base64 = (length: number) => "QUJD".repeat(length / 4);

  test("weighs the text as estimateTokens does, in whichever way its characters are written", () => {
    for (const text of [
      "The quick brown fox jumps over the lazy dog. ".repeat(200),
      "0123456789 ".repeat(500),
      "人工智能是计算机科学的一个分支，".repeat(200),
      "Искусственный интеллект ".repeat(200),
    ]) {
      const expected = estimateTokens(text);
      for (const json of [JSON.stringify(text), escaped(text)]) {
        const tokens = estimatePromptTokens(bytes(`{"messages":[{"role":"user","content":${json}}]}`));
        expect(tokens).toBeGreaterThan(expected * 0.9);
        expect(tokens).toBeLessThan(expected * 1.1 + 30);
      }
    }
    expect(estimatePromptTokens(bytes(""))).toBe(0);
  });

  test("takes images and sounds in the parts of a message for what they are, not for their bytes", () => {
    const url = `data:image/png;base64,${base64(400_000)}`;
    const image = { type: "image_url", image_url: { url } };
    const text = { type: "text", text: "what is it?" };
    const one = estimatePromptTokens(body([image, text]));
    expect(one).toBeGreaterThan(IMAGE_TOKENS);
    expect(one).toBeLessThan(IMAGE_TOKENS + 100);
    expect(estimatePromptTokens(body([image, image, text]))).toBeGreaterThan(2 * IMAGE_TOKENS);
    // Tiny in bytes, and yet an image.
    const linked = { type: "image_url", image_url: { url: "https://x.test/a.png" } };
    expect(estimatePromptTokens(body(Array(20).fill(linked)))).toBeGreaterThan(20 * IMAGE_TOKENS);
    const sound = { type: "input_audio", input_audio: { data: base64(500_000), format: "wav" } };
    const heard = estimatePromptTokens(body([sound, text]));
    expect(heard).toBeGreaterThan(9_000);
    expect(heard).toBeLessThan(11_000);
    const native = bytes(JSON.stringify({ messages: [{ content: "hi", images: [base64(80_000)] }] }));
    expect(estimatePromptTokens(native)).toBeLessThan(IMAGE_TOKENS + 100);
  });

  test("is not deceived by text that looks like an image, wherever it stands", () => {
    const words = "the quick brown fox jumps over the lazy dog and says what it saw ".repeat(1_000);
    const honest = estimatePromptTokens(body(words));
    const disguised: unknown[] = [
      { messages: [{ role: "user", content: `;base64,${words}` }] },
      { messages: [{ role: "user", content: `data:image/png;base64,${words}` }] },
      { messages: [{ role: "user", content: [{ type: "text", text: `data:image/png;base64,${words}` }] }] },
      { messages: [{ role: "user", content: [{ type: "text", text: words, image_url: { url: "x" } }] }] },
      { messages: [{ content: "x" }], tools: [{ function: { parameters: { images: [words] } } }] },
      { messages: [{ content: "x" }], metadata: { image_url: { url: words } } },
      { image_url: { url: words }, messages: [{ content: "x" }] },
      { messages: { "[]": { images: [words] } }, prompt: "image" },
      { messages: [{ "[]": 1, content: words, images: [] }] },
      { messages: [{ "": { images: [words] }, content: "image" }] },
    ];
    for (const one of disguised) {
      expect({ one, tokens: estimatePromptTokens(bytes(JSON.stringify(one))) }).toEqual({
        one,
        tokens: expect.any(Number),
      });
      expect(estimatePromptTokens(bytes(JSON.stringify(one)))).toBeGreaterThan(honest * 0.9);
    }
    // An escaped key is the key.
    const hidden = `{"messages":[{"content":[{"\\u0069mage_url":{"url":"${base64(40_000)}"}}]}]}`;
    expect(estimatePromptTokens(bytes(hidden))).toBeLessThan(IMAGE_TOKENS + 100);
  });

  test("comes to an end with any bytes", () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.uint8Array({ maxLength: 3_000 }), fc.string({ unit: "binary" }).map(bytes)),
        fc.constantFrom("", '{"messages":[{"content":[{"image_url":{"url":"', '\\u12image"'),
        (some, start) => {
          const mixed = Buffer.concat([Buffer.from(start), some]);
          for (const tokens of [estimatePromptTokens(mixed), samplePromptTokens(mixed)]) {
            expect(Number.isInteger(tokens)).toBe(true);
            expect(tokens).toBeGreaterThanOrEqual(0);
          }
        },
      ),
    );
    expect(estimatePromptTokens(bytes('{"url":"data:image/png;base64,AAAA'))).toBeGreaterThan(5);
  });
});

describe("samplePromptTokens", () => {
  test("is the estimate for short bodies, and near it for long ones", () => {
    const short = bytes(
      JSON.stringify({ messages: [{ role: "user", content: "hello there, who are you?" }] }),
    );
    expect(samplePromptTokens(short)).toBe(estimatePromptTokens(short));
    for (const content of ["0123456789 ", "The quick brown fox jumps. ", "人工智能是", '{"a": [1, 2]}, ']) {
      const long = bytes(JSON.stringify({ messages: [{ role: "user", content: content.repeat(3_000) }] }));
      const exact = estimatePromptTokens(long);
      const samples = Array.from({ length: 50 }, () => samplePromptTokens(long) / exact);
      const mean = samples.reduce((sum, one) => sum + one, 0) / samples.length;
      expect(mean).toBeGreaterThan(0.9);
      expect(mean).toBeLessThan(1.1);
    }
  });
});

/** JSON with every character beyond ASCII escaped, as some clients write it. */
const escaped = (text: string): string =>
  JSON.stringify(text).replace(
    /[\u0080-\uffff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
