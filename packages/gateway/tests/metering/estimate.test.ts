import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  estimatePromptTokens,
  estimateTokens,
  FETCHED_TOKENS,
  IMAGE_TOKENS,
  TokenCounter,
} from "../../src/rooms/metering/index.ts";
import { mediaIn } from "../../src/rooms/metering/media.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

describe("estimateTokens", () => {
  // Counted with the o200k vocabulary.
  const counted: [string, number][] = [
    ["The quick brown fox jumps over the lazy dog, and the gateway counts what it said.", 18],
    ["人工智能是计算机科学的一个分支，它企图了解智能的实质。", 19],
    ["吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。", 32],
    ["대한민국은 동아시아의 한반도 남부에 위치한 나라이다.", 18],
    ["Искусственный интеллект изучает методы решения задач, требующих человеческого разумения.", 18],
    [
      "export const costUsd = ({ prompt, completion }: Tokens): number => (prompt * 5 + completion * 30) / 1e6;",
      31,
    ],
    [
      '{"id":"chatcmpl-1","object":"chat.completion","usage":{"prompt_tokens":12,"completion_tokens":34}}',
      27,
    ],
    ["KN8vQ2mZcT1xW0pYbR7sLfG4hJ6dA9uE3iOq5nXtVzMlCkBwSyPoIaUeHgFrDjNv8b2Q1mZk", 59],
    ["8f14e45fceea167a5a36dedd4bea2543c9f0f895fb98ab9159f51fd0297e236d", 38],
    ["3d6f0a5c-9b1e-4f7a-8c2d-5e4b3a291f08, 7c9e6679-7425-40de-944b-e07fc1f90ae7", 58],
    ["314159265358979323846264338327950288419716939937510582097494459230781640", 24],
    ["12, 7, 40591, 3, 882, 19, 6650, 71, 8, 23904, 5, 618, 77, 3321, 90, 4, 15", 53],
    ["😀😃😄😁😆😅🤣😂🙂🙃", 15],
  ];
  for (const [text, tokens] of counted) {
    test(`is within a fifth below and 45 % above ${tokens} for ${text.slice(0, 24)}…`, () => {
      expect(estimateTokens(text)).toBeGreaterThan(tokens * 0.8);
      expect(estimateTokens(text)).toBeLessThan(tokens * 1.45);
    });
  }

  // Of scripts that no vocabulary has, o200k makes a token of nearly every byte.
  const unknown: [name: string, from: number, to: number, tokensEach: number][] = [
    ["Latin letters of other languages", 0x1c4, 0x217, 2],
    ["phonetic letters", 0x250, 0x2af, 2],
    ["N\u2019Ko", 0x7c0, 0x7ff, 2],
    ["Tibetan", 0xf40, 0xf6c, 2],
    ["jamo", 0x1100, 0x11ff, 3],
    ["runes", 0x16a0, 0x16f0, 3],
    ["arrows", 0x2190, 0x21ff, 2],
    ["braille", 0x2800, 0x28ff, 3],
    ["Han beyond the usual", 0x3400, 0x4dbf, 3],
    ["private use", 0xe000, 0xf8ff, 3],
    ["hieroglyphs", 0x13000, 0x1342e, 4],
  ];
  for (const [name, from, to, tokensEach] of unknown) {
    test(`takes ${name} for ${tokensEach} tokens each, written as they are or escaped`, () => {
      const text = Array.from({ length: 500 }, (_, i) =>
        String.fromCodePoint(from + ((i * 7) % (to - from))),
      ).join("");
      for (const json of [JSON.stringify(text), escaped(text)]) {
        const counter = new TokenCounter();
        counter.addJson(bytes(json));
        expect(counter.tokens).toBeGreaterThan(500 * tokensEach * 0.85);
        expect(counter.tokens).toBeLessThan(500 * tokensEach * 1.15);
      }
    });
  }

  // Counted with the o200k vocabulary.
  const blank: [text: string, tokens: number][] = [
    ["\r\t".repeat(2_000), 4_000],
    ["\v\f".repeat(2_000), 4_000],
    [" \n".repeat(2_000), 1_000],
    ["\t ".repeat(2_000), 2_000],
    ["\r".repeat(4_000), 2_000],
    ["\r\n\n\r".repeat(600), 1_200],
    ["\n".repeat(16_384), 1_024],
    ["\t".repeat(16_384), 1_024],
    [" ".repeat(16_384), 128],
  ];
  for (const [text, tokens] of blank) {
    test(`takes white space whose kinds take turns for what it is, such as ${JSON.stringify(text.slice(0, 2))}`, () => {
      expect(estimateTokens(text)).toBeGreaterThan(tokens * 0.33);
      const counter = new TokenCounter();
      counter.addJson(bytes(JSON.stringify(text)));
      expect(counter.tokens).toBeGreaterThan(tokens * 0.33);
    });
  }

  test("takes runs of it, and the beginnings of lines, for little", () => {
    expect(estimateTokens(" ".repeat(4_000))).toBeLessThan(40);
    expect(estimateTokens("\r\n\r\n\t\t".repeat(20))).toBeLessThan(65);
    expect(estimateTokens("a\n        b".repeat(100))).toBeLessThan(90);
  });

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
    const film = { type: "video_url", video_url: { url: "https://x.test/a.mp4" } };
    expect(estimatePromptTokens(body([film, text]))).toBeGreaterThan(IMAGE_TOKENS);
    const novel = "word ".repeat(10_000);
    const file_data = `data:text/plain;base64,${Buffer.from(novel).toBase64()}`;
    const read = estimatePromptTokens(body([{ type: "file", file: { filename: "a.txt", file_data } }]));
    expect(read).toBeGreaterThan(10_000);
    expect(read).toBeLessThan(16_000);
    const stored = { role: "user", content: "hi", images: [{ url }] };
    const remembered = estimatePromptTokens(bytes(JSON.stringify({ messages: [stored] })));
    expect(remembered).toBeGreaterThan(IMAGE_TOKENS);
    expect(remembered).toBeLessThan(IMAGE_TOKENS + 100);
    const native = bytes(JSON.stringify({ messages: [{ content: "hi", images: [base64(80_000)] }] }));
    expect(estimatePromptTokens(native)).toBeLessThan(IMAGE_TOKENS + 100);
  });

  test.each([
    { messages: [{ content: [{ type: "document", source: { type: "url", url: "https://x.test" } }] }] },
    { messages: [{ content: [{ type: "image", source: { type: "file", file_id: "file_1" } }] }] },
    { messages: [{ content: [{ type: "file", file: { file_id: "file_1" } }] }] },
    { messages: [{ content: [{ content: [{ source: { type: "file", file_id: "file_1" } }] }] }] },
    { input: [{ role: "user", content: [{ type: "input_file", file_url: "https://x.test/a.pdf" }] }] },
    { input: [{ role: "user", content: [{ type: "input_file", file_id: "file_1" }] }] },
    { input: [{ type: "function_call_output", output: [{ type: "input_file", file_id: "file_1" }] }] },
    { contents: [{ parts: [{ file_data: { file_uri: "https://x.test/a.mp4" } }] }] },
    { contents: [{ parts: [{ fileData: { mimeType: "video/mp4", fileUri: "https://x.test/a.mp4" } }] }] },
  ])("what an upstream fetches by an address or an id may fill the context: %j", (request) => {
    expect(estimatePromptTokens(bytes(JSON.stringify(request)))).toBeGreaterThan(FETCHED_TOKENS);
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

  describe("of long prompts only samples are counted", () => {
    const prose = "The gateway counts what is said, and the clerk books it. ".repeat(9);
    const source = 'export const sum = (a: number, b = 1): number => a + b; // "x"\n'.repeat(9);
    const random = (length: number) => crypto.getRandomValues(new Uint8Array(length)).toBase64();
    const long: [name: string, parts: string[]][] = [
      ["one text", [prose.repeat(400)]],
      ["a session of tools", Array.from({ length: 300 }, (_, i) => (i % 3 ? source : prose))],
      ["encoded data behind cheap text", [" ".repeat(150_000), random(75_000)]],
      ["what is escaped", [JSON.stringify(prose.repeat(20)), '"\\'.repeat(9_000), "\n\u0001".repeat(9_000)]],
      ["texts of another script", ["人工智能是计算机科学的一个分支，".repeat(3_000), prose.repeat(100)]],
      ["many empty texts", ["", ...Array(20_000).fill(""), prose.repeat(100), ...Array(20_000).fill("")]],
    ];
    for (const [name, texts] of long) {
      const tokensOf = (json: string) => new TokenCounter().addJson(bytes(json)).tokens;
      test(`and come to within a tenth of the whole: ${name}`, () => {
        const json = JSON.stringify({ messages: texts.map((content) => ({ role: "user", content })) });
        const whole = tokensOf(json);
        for (let round = 0; round < 5; round++)
          for (const mayHaveMedia of [true, false]) {
            const tokens = estimatePromptTokens(bytes(json), mayHaveMedia);
            expect(Math.abs(tokens / whole - 1)).toBeLessThan(0.1);
          }
      });

      test(`beside images too, which are not text: ${name}`, () => {
        const images = Array(50).fill({ image_url: { url: `data:image/png;base64,${"QUJD".repeat(500)}` } });
        const content = texts.flatMap((text, i) => [{ type: "text", text }, ...(i % 40 ? [] : images)]);
        const counted = mediaIn(bytes(JSON.stringify({ messages: [{ role: "user", content }] })));
        const without = content.map((part) => ("image_url" in part ? { image_url: { url: "" } } : part));
        const whole = counted.tokens + tokensOf(JSON.stringify({ messages: [{ content: without }] }));
        const tokens = estimatePromptTokens(bytes(JSON.stringify({ messages: [{ role: "user", content }] })));
        expect(Math.abs(tokens / whole - 1)).toBeLessThan(0.1);
      });
    }

    test("and do not begin within an escape, whose digits are no text", () => {
      for (const text of ["Сегодня хорошая погода. ".repeat(2_000), "今天天气很好，".repeat(3_000)]) {
        const json = `{"messages":[{"role":"user","content":${escaped(text)}}]}`;
        const tokens = estimatePromptTokens(bytes(json)) / estimateTokens(text);
        expect(Math.abs(tokens - 1)).toBeLessThan(0.03);
      }
    });

    // One estimate is off by up to a sixth here, but as often above as below.
    const hostile: [name: string, messages: unknown[]][] = [
      ["as far apart as the samples", [" ".repeat(700) + random(500)]],
      ["where stretches begin and end", [random(48) + " ".repeat(128) + random(48)]],
      ["in long words", [" ".repeat(900) + "qzxjkvwpbf".repeat(20)]],
      ["behind escaped backslashes", ["\\\\udc00 \\u1a1a".repeat(40)]],
      ["between what is no text", [random(96), " ".repeat(128), [{ type: "thinking", signature: "QUJD" }]]],
    ];
    test.each(hostile)("and nobody can hide from them what weighs most: %s", (_, period) => {
      const messages = Array(256).fill(period).flat();
      const json = bytes(JSON.stringify({ messages: messages.map((content) => ({ content })) }));
      const { tokens, text } = mediaIn(json);
      const whole = tokens + new TokenCounter().addJson(text).tokens;
      let sum = 0;
      for (let round = 0; round < 100; round++) sum += estimatePromptTokens(json);
      expect(Math.abs(sum / 100 / whole - 1)).toBeLessThan(0.04);
    });
  });

  test("comes to an end with any bytes", () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.uint8Array({ maxLength: 3_000 }), fc.string({ unit: "binary" }).map(bytes)),
        fc.constantFrom("", '{"messages":[{"content":[{"image_url":{"url":"', '\\u12image"'),
        (some, start) => {
          const mixed = Buffer.concat([Buffer.from(start), some]);
          const tokens = estimatePromptTokens(mixed);
          expect(Number.isInteger(tokens)).toBe(true);
          expect(tokens).toBeGreaterThanOrEqual(0);
        },
      ),
    );
    expect(estimatePromptTokens(bytes('{"url":"data:image/png;base64,AAAA'))).toBeGreaterThan(5);
  });
});

describe("TokenCounter", () => {
  test("does not depend on how a text is cut into pieces", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), fc.array(fc.nat({ max: 40 })), (text, cuts) => {
        const whole = new TokenCounter();
        whole.addText(text);
        const pieces = new TokenCounter();
        const characters = [...text];
        let at = 0;
        for (const length of [...cuts, characters.length]) {
          pieces.addText(characters.slice(at, at + length).join(""));
          at += length;
        }
        expect(pieces.tokens).toBe(whole.tokens);
      }),
    );
  });

  test("weighs JSON as the text that it stands for, escaped backslashes too", () => {
    const texts = ['say "hi"\n', "\\u4e2d\\u4e2d is written like that", "a\tb\nc", "\u{1F600} 中文 é"];
    // Words that are nearly too long to be any.
    for (const text of [...texts, "straightforwardé", "abcdefghijklmn\nabcdefghijklmn", "élémentairement"]) {
      const plain = new TokenCounter();
      plain.addText(text);
      for (const json of [JSON.stringify(text), escaped(text)]) {
        const counter = new TokenCounter();
        counter.addJson(bytes(json.slice(1, -1)));
        expect({ text, weight: counter.weight }).toEqual({ text, weight: plain.weight });
      }
    }
    const word = new TokenCounter();
    word.addJson(bytes("\\u0077ords"));
    const plain = new TokenCounter();
    plain.addText("words");
    expect(word.weight).toBe(plain.weight);
  });
});

/** JSON with every character beyond ASCII escaped, as some clients write it. */
const escaped = (text: string): string =>
  JSON.stringify(text).replace(
    /[\u0080-\uffff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
