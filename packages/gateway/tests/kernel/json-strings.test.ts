import { expect, test } from "bun:test";
import fc from "fast-check";
import { JsonScanError, parseScanned, scanObject } from "../../src/kernel/json-scan.ts";
import { endOfString, JsonStrings } from "../../src/kernel/json-strings.ts";

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

/** The bytes at another place of their memory: four of them are read at a time. */
function placed(text: string, offset: number): Buffer {
  const bytes = Buffer.from(text);
  const memory = Buffer.from(new ArrayBuffer(bytes.length + offset));
  // What follows and precedes is nobody's business.
  memory.fill('"');
  bytes.copy(memory, offset);
  return memory.subarray(offset, offset + bytes.length);
}

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
    fc.property(content, content, fc.nat(3), fc.boolean(), (first, second, offset, isDeep) => {
      const inner = `"${first}","x","${second}"`;
      const text = isDeep ? `{"a":[{"b":[${inner}]}],"c":"${first}"}` : `{"a":"${first}","b":"${second}"}`;
      const bytes = placed(text, offset);
      if (isJson(text)) {
        valid++;
        expect(scanObject(bytes).map(({ key }) => key)).toEqual(Object.keys(JSON.parse(text)));
      } else {
        invalid++;
        expect(() => scanObject(bytes)).toThrow(JsonScanError);
      }
    }),
    { numRuns: 3_000 },
  );
  expect(Math.min(valid, invalid)).toBeGreaterThan(300);
});

test("a bad byte is found at every place of a long string", () => {
  // Escapes enough that the parser does not see it where nothing is wrong.
  const filler = `${'\\"'.repeat(20)}${"x".repeat(600)}`;
  for (const bad of INVALID.filter((piece) => piece !== '"'))
    for (let at = 500; at < 520; at++) {
      const inside = `${filler.slice(0, at)}${bad}${filler.slice(at)}`;
      expect(() => scanObject(placed(`{"a":"${inside}"}`, at % 4)), inside).toThrow(JsonScanError);
    }
});

test("the end of every string is where its quote is, or nowhere", () => {
  fc.assert(
    fc.property(content, fc.nat(3), (text, offset) => {
      const bytes = placed(`"${text}`, offset);
      const latin1 = bytes.toString("latin1");
      expect(new JsonStrings(bytes, latin1).endOf(1)).toBe(endOfString(latin1, 1));
    }),
    { numRuns: 1_000 },
  );
});

test("long strings with many escapes are not parsed, and everything else is", () => {
  const long = "a line of code\n".repeat(50);
  const said = {
    model: "m\n",
    plain: "y".repeat(300),
    prose: `${"z".repeat(600)}\n${"z".repeat(600)}`,
    list: [long, { deep: long, é: [1, null] }, ""],
  };
  const bytes = Buffer.from(JSON.stringify(said));
  const strings = new JsonStrings(bytes, bytes.toString("latin1"));
  for (let at = bytes.indexOf('"'); at !== -1; ) {
    const end = strings.endOf(at + 1);
    at = bytes.indexOf('"', end);
  }
  const parsed = { ...said, list: ["", { deep: "", "\xc3\xa9": [1, null] }, ""] };
  expect(parseScanned(strings)).toEqual(parsed);
});
