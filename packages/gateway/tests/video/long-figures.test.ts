import { expect, test } from "bun:test";
import { plainName } from "../../src/kernel/member-name.ts";
import { readClip } from "../../src/rooms/video/clip-facts.ts";

/** Marks in the wrong order: to put them in order takes a time that grows with the square of their number. */
const MARKS = `a${"\u0315\u0300".repeat(500_000)}`;

test("a text that is too long for a figure is read at once, as the most that it could be", () => {
  for (const text of [MARKS, "1 ".repeat(1_000_000), "\ufdfa".repeat(1_000_000)]) {
    const read = readClip({ duration: text, resolution: text, [text]: 1, nested: { [text]: 1 } });
    expect(read).toMatchObject({ seconds: [Number.MAX_VALUE], shortSides: [], sizeUnclear: true });
  }
});

test("of a list of any length the largest counts", () => {
  expect(readClip({ duration: [...Array(900_000).fill(1), 7, 3] }).seconds).toEqual([7]);
});

test("a name is still found under marks, points and other spellings", () => {
  for (const name of ["num_frames", "Num-Frames", "ＮＵＭ＿frames", "num\u0301 frames", "num.frame\u017f"])
    expect([name, plainName(name)]).toEqual([name, "numframes"]);
  expect(plainName(MARKS)).toBe("a");
});
