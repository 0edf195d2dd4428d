import { expect, test } from "bun:test";
import fc from "fast-check";
import { utcMonth } from "../../src/rooms/usage/index.ts";

test("a month is the same whatever was asked before, at its edges too, and no month leaves no trace", () => {
  const edges = ["1969-12-01", "2024-02-29", "2026-12-31", "2027-01-01"].flatMap((day) => {
    const ms = Date.parse(day);
    return [ms - 1, ms, ms + 0.5, ms + 1, ms + 86_399_999, ms + 86_400_000];
  });
  const anyMs = fc.oneof(
    fc.constantFrom(...edges, 0, -0, Number.NaN, Number.POSITIVE_INFINITY),
    fc.integer({ min: -1e12, max: 4e12 }),
  );
  fc.assert(
    fc.property(fc.array(anyMs), (asked) => {
      for (const ms of asked)
        if (Number.isFinite(ms)) expect(utcMonth(ms)).toBe(new Date(ms).toISOString().slice(0, 7));
        else expect(() => utcMonth(ms)).toThrow(RangeError);
    }),
  );
});
