/** Every parser at an edge, for a second or so each; `npm run fuzz` goes on for as long as it is told. */
import { describe, expect, test } from "bun:test";
import { CASES } from "./cases.ts";
import { Fuzzing, PARSERS, problemOf } from "./run.ts";

/** Another day's tests try other inputs; the seed is in what fails. */
const SEED = Math.floor(Date.now() / 86_400_000) * 100_003;
const INPUTS_MAX = 20_000;
const BUDGET_MS = 600;

describe.each(PARSERS.map((parser) => [parser.name, parser] as const))("%s", (_, parser) => {
  test("reads what is right", async () => {
    for (const seed of parser.seeds)
      expect(await problemOf(parser, Buffer.from(seed as Buffer), 1)).toBeNull();
  });

  test("holds for what is made of it", async () => {
    const fuzzing = new Fuzzing(parser, SEED);
    const untilMs = performance.now() + BUDGET_MS;
    while (fuzzing.count < INPUTS_MAX && performance.now() < untilMs) expect(await fuzzing.next()).toBeNull();
    expect(fuzzing.count).toBeGreaterThan(0);
  });
});

test.each(CASES)("%s, seed %d: %s", async (name, seed, base64) => {
  const parser = PARSERS.find((each) => each.name === name)!;
  expect(await problemOf(parser, Buffer.from(base64, "base64"), seed)).toBeNull();
});
