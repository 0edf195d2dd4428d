import { expect, test } from "bun:test";
import { failure } from "../src/failure.ts";
import { until } from "../src/until.ts";

test("asks until the condition holds, synchronous or not", async () => {
  let asked = 0;
  await until("the third time", () => ++asked === 3);
  await until("the sixth time", async () => ++asked === 6);
  expect(asked).toBe(6);
});

test("names what did not happen in time", async () => {
  const error = (await failure(until("the impossible", () => false, 0))) as Error;
  expect(error.message).toBe("not within 0 ms: the impossible");
});

test("an error of the condition is not swallowed", async () => {
  const broken = until("never mind", () => {
    throw new Error("broken");
  });
  expect(((await failure(broken)) as Error).message).toBe("broken");
});
