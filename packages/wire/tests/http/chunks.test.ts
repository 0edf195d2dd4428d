import { describe, expect, test } from "bun:test";
import { ChunkDecoder } from "../../src/http/chunks.ts";

/** What a body in chunks says when it comes in two parts, and where it ends; or why it is none. */
function decode(body: string, { isLenient, splitAt }: { isLenient: boolean; splitAt: number }): string {
  let text = "";
  const decoder = new ChunkDecoder(
    {
      piece: (bytes) => {
        text += bytes.toString();
      },
      malformed: (reason) => {
        throw new Error(reason);
      },
    },
    { isLenient },
  );
  try {
    const first = decoder.feed(Buffer.from(body.slice(0, splitAt)), 0);
    const second = decoder.feed(Buffer.from(body.slice(splitAt)), 0);
    return decoder.isDone ? `${text}|${body.slice(first + second)}` : `${text}...`;
  } catch (error) {
    return (error as Error).message;
  }
}

function onEachSplit(body: string, isLenient: boolean): string[] {
  const positions = Array.from({ length: body.length + 1 }, (_, splitAt) => splitAt);
  return [...new Set(positions.map((splitAt) => decode(body, { isLenient, splitAt })))];
}

const NO_SIZE = "a chunk's size is not a number";
const CONTROL = "a chunk's line has a control character in it";
const NO_END = "a chunk's line does not end with a line feed";
const LONGER = "a chunk is longer than its size says";

describe("wherever it is split, a body reads the same", () => {
  // The body, what a client's says, and what an upstream's says.
  test.each([
    ["3\r\nabc\r\n0\r\n\r\nnext", "abc|next", "abc|next"],
    ["0003\r\nabc\r\n00\r\n\r\n", "abc|", "abc|"],
    ["A;name=value\r\n0123456789\r\n0;last\r\n\r\n", "0123456789|", "0123456789|"],
    ["1\r\na\r\n0\r\nDigest: x\r\nMore: y\r\n\r\nnext", "a|next", "a|next"],
    ["1\r\na\r\n1\r\nb\r\n", "ab...", "ab..."],
    ["3\nabc\n0\n\nnext", NO_SIZE, "abc|next"],
    ["3;x\nabc\r\n0\r\n\r\n", CONTROL, "abc|"],
    ["3\r\nabc\n0\r\n\r\n", LONGER, "abc|"],
    ["1\r\na\r\n0\r\nDigest: x\n\n", CONTROL, "a|"],
    ["3  \r\nabc\r\n0 \r\n\r\n", NO_SIZE, "abc|"],
    ["3\r\nabcd\r\n0\r\n\r\n", LONGER, LONGER],
    ["3\rxabc", NO_END, NO_END],
    ["\r\n", NO_SIZE, NO_SIZE],
    ["-1\r\n", NO_SIZE, NO_SIZE],
    ["0x3\r\nabc\r\n", NO_SIZE, NO_SIZE],
    ["1234567890abc\r\n", NO_SIZE, NO_SIZE],
    ["3;a\0b\r\nabc\r\n", CONTROL, CONTROL],
  ])("%j", (body, strict, lenient) => {
    expect(onEachSplit(body, false)).toEqual([strict]);
    expect(onEachSplit(body, true)).toEqual([lenient]);
  });
});

test("a size line or trailers without an end are refused", () => {
  for (const body of [`3;${"x".repeat(9_000)}`, `0\r\n${"a: b\r\n".repeat(2_000)}`])
    expect(decode(body, { isLenient: true, splitAt: 0 })).toBe("a chunk's framing does not end");
});
