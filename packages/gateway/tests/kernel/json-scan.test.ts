import { expect, test } from "bun:test";
import fc from "fast-check";
import { parseJson } from "../../src/kernel/json.ts";
import { endOfBrackets, JSON_DEPTH_MAX, JsonNesting } from "../../src/kernel/json-scan.ts";

const value = fc.oneof(
  fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 })),
  fc.array(fc.jsonValue({ maxDepth: 3 })),
  // Quotes and backslashes in every constellation.
  fc.array(fc.stringMatching(/^[\\"a{}[\]]*$/)),
);

test("a value's end is found wherever its text is cut", () => {
  fc.assert(
    fc.property(value, fc.array(fc.nat(500)), (any, cuts) => {
      const json = JSON.stringify(any);
      expect(endOfBrackets(`${json} ]}`, 0)).toBe(json.length);
      const at = [0, ...cuts.map((cut) => cut % json.length).sort((a, b) => a - b), json.length];
      const nesting = new JsonNesting();
      for (const [i, end] of at.slice(1).entries()) {
        expect(nesting.isClosed).toBe(false);
        nesting.feed(json.slice(at[i], end));
      }
      expect(nesting.isClosed).toBe(true);
    }),
    { numRuns: 500 },
  );
});

test("brackets that do not match never count as closed", () => {
  for (const text of ["{]", "[}", '{"a":[}]', "]", "{}}"]) {
    const nesting = new JsonNesting();
    nesting.feed(text);
    expect(nesting.isClosed, text).toBe(false);
  }
});

test("a document is refused by its depth before it is parsed; brackets in texts do not count", () => {
  const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
  expect(parseJson(nested(JSON_DEPTH_MAX))).toBeArray();
  expect(() => parseJson(nested(JSON_DEPTH_MAX + 1))).toThrow("nested deeper");
  expect(() => parseJson("[".repeat(10_000))).toThrow("nested deeper");
  expect(() => parseJson("[".repeat(1_000_000))).toThrow("nested deeper");
  expect(parseJson(JSON.stringify(nested(1_000)))).toBe(nested(1_000));
});
