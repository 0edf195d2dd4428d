import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { outlineOf } from "../../src/rooms/inference/request/payload.ts";

/** The members, and what a parser says of the rest. */
function scanObject(bytes: Buffer) {
  const text = bytes.toString("latin1");
  return { members: outlineOf(bytes, text).members, parsed: JSON.parse(text) };
}
const membersOf = (bytes: Buffer) => scanObject(bytes).members;
const isRefused = (bytes: Buffer, what: string) => expect(() => scanObject(bytes), what).toThrow();

describe("the scanner", () => {
  test("finds the members of any JSON object where JSON.parse finds them", () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.string(), fc.jsonValue()),
        fc.integer({ min: 0, max: 4 }),
        (object, indent) => {
          const bytes = Buffer.from(JSON.stringify(object, null, indent));
          const found = membersOf(bytes).map(({ key, valueStart, end }) => [
            key,
            JSON.parse(bytes.toString("utf8", valueStart, end)),
          ]);
          expect(found).toEqual(Object.entries(JSON.parse(bytes.toString())));
        },
      ),
      { numRuns: 500 },
    );
  });

  test("walks long strings with quotes and backslashes at every position", () => {
    for (const filler of ["a", '"', "\\", '\\"', "é", "\n"]) {
      for (let length = 0; length < 60; length++) {
        const text = filler.repeat(length);
        const bytes = Buffer.from(JSON.stringify({ before: 1, text, after: text }));
        expect(membersOf(bytes).map(({ key }) => key)).toEqual(["before", "text", "after"]);
      }
    }
  });

  test("refuses what is no JSON object", () => {
    const broken = [
      "",
      "[]",
      "null",
      '"x"',
      "{",
      '{"a"}',
      '{"a":}',
      '{"a":1,}',
      '{"a":1 "b":2}',
      '{"a":[1}',
      '{"a":{]}',
      '{"a":"x}',
      '{"a":01}',
      '{"a":nul}',
      '{"a":1}}',
      '{"a":1} x',
      "{a:1}",
      `{"a":${"[".repeat(200)}${"]".repeat(200)}}`,
    ];
    for (const text of broken) isRefused(Buffer.from(text), text);
  });
});

/** Pieces of a string's content as they stand in JSON, those that must not stand there last. */
const VALID = [
  "a",
  "plain words ",
  '\\"',
  "\\\\",
  "\\n",
  "\\/",
  "\\u00e9",
  "\\uD83D",
  "é",
  "😀",
  "\x7f",
  "{[,:]}",
];
const INVALID = ["\n", "\x00", "\x1f", "\\x", "\\u12", "\\u12g4", "\\U0041", "\\u", '"', "\\", "\\\n", "\\é"];

const content = fc
  .array(
    fc.oneof(
      { weight: 400, arbitrary: fc.constantFrom(...VALID) },
      { weight: 1, arbitrary: fc.constantFrom(...INVALID) },
    ),
    {
      maxLength: 300,
      size: "max",
    },
  )
  .map((pieces) => pieces.join(""));

const isJson = (text: string): boolean => {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
};

test("an object is valid where JSON.parse says so, whatever its strings have in them", () => {
  let [valid, invalid] = [0, 0];
  fc.assert(
    fc.property(content, content, fc.boolean(), (first, second, isDeep) => {
      const inner = `"${first}","x","${second}"`;
      const text = isDeep ? `{"a":[{"b":[${inner}]}],"c":"${first}"}` : `{"a":"${first}","b":"${second}"}`;
      const bytes = Buffer.from(text);
      if (isJson(text)) {
        valid++;
        expect(membersOf(bytes).map(({ key }) => key)).toEqual(Object.keys(JSON.parse(text)));
      } else {
        invalid++;
        isRefused(bytes, text);
      }
    }),
    { numRuns: 3_000 },
  );
  expect(Math.min(valid, invalid)).toBeGreaterThan(300);
});
