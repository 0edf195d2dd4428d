import { expect, test } from "bun:test";
import { z } from "zod";
import { describeIssues } from "../../src/kernel/validate.ts";

const Params = z.object({
  name: z.string().trim().min(1).max(3),
  password: z.string().min(8, "at least 8 characters, please"),
  models: z.array(z.string()).min(2),
  limit: z.number().positive().max(10),
});

const words = (value: unknown) => describeIssues(Params.safeParse(value).error!);
const good = { name: "a", password: "12345678", models: ["x", "y"], limit: 1 };

test("bounds are said as people say them, with the field", () => {
  expect(words({ ...good, name: "  " })).toBe("`name`: must not be empty");
  expect(words({ ...good, name: "abcd" })).toBe("`name`: must have at most 3 characters");
  expect(words({ ...good, models: [] })).toBe("`models`: must have at least 2 entries");
  expect(words({ ...good, limit: 11 })).toBe("`limit`: must be at most 10");
  expect(words({ ...good, limit: 0 })).toBe("`limit`: must be more than 0");
});

test("what is missing and what is of another type is said in the same words everywhere", () => {
  const { name: _, ...nameless } = good;
  expect(words(nameless)).toBe("`name`: is required");
  expect(words({ ...good, name: 5 })).toBe("`name`: must be a string");
  expect(words({ ...good, models: 5 })).toBe("`models`: must be an array");
  expect(words({ ...good, models: ["x", null] })).toBe("`models.1`: must be a string");
  expect(words({ ...good, limit: "many" })).toBe("`limit`: must be a number");
  expect(words([])).toBe("must be an object");
  expect(describeIssues(z.object({ points: z.int() }).safeParse({ points: 1.5 }).error!)).toBe(
    "`points`: must be an integer",
  );
});

test("a schema's own words stay", () => {
  expect(words({ ...good, password: "short" })).toBe("`password`: at least 8 characters, please");
});
