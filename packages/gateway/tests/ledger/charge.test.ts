import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { charge, exactPoints, FEMTO_PER_POINT } from "../../src/rooms/ledger/charge.ts";

const cost = fc.bigInt({ min: 0n, max: 50_000_000_000n });
const multiplier = fc.integer({ min: 1, max: 5_000_000 });
const pointsPerUsd = fc.constantFrom(1, 7, 100, 1_000, 1_000_000);

describe("the arithmetic of a charge", () => {
  test("the first charge of an account is the cost in points, rounded half up", () => {
    fc.assert(
      fc.property(cost, multiplier, pointsPerUsd, (costNanoUsd, multiplierMicros, perUsd) => {
        const exact = exactPoints({ costNanoUsd, pointsPerUsd: perUsd, multiplierMicros })!;
        const charged = charge({ balance: Number.MAX_SAFE_INTEGER, remainder: 0 }, exact);
        const femto = costNanoUsd * BigInt(perUsd) * BigInt(multiplierMicros);
        const rounded = (femto * 2n + BigInt(FEMTO_PER_POINT)) / (2n * BigInt(FEMTO_PER_POINT));
        expect(charged.points).toBe(Number(rounded));
      }),
    );
  });

  test("an amount is exact on both sides of what a number holds exactly", () => {
    const max = BigInt(Number.MAX_SAFE_INTEGER);
    const nearMax = fc.bigInt({ min: max - 1_000_000n, max: max + 1_000_000n });
    const nearWholePoints = fc
      .tuple(fc.bigInt({ min: 0n, max: 9n }), fc.bigInt({ min: -3n, max: 3n }))
      .map(([points, femto]) => points * BigInt(FEMTO_PER_POINT) + femto)
      .filter((femto) => femto >= 0n);
    fc.assert(
      fc.property(fc.oneof(nearMax, nearWholePoints), fc.constantFrom(2, 7, 100), (femto, perUsd) => {
        const costNanoUsd = femto / BigInt(perUsd);
        const exact = exactPoints({ costNanoUsd, pointsPerUsd: perUsd, multiplierMicros: 1 })!;
        const expected = costNanoUsd * BigInt(perUsd);
        expect(BigInt(exact.points) * BigInt(FEMTO_PER_POINT) + BigInt(exact.femto)).toBe(expected);
        expect(exact.femto).toBeLessThan(FEMTO_PER_POINT);
      }),
      { numRuns: 2_000 },
    );
  });

  test("over time the points taken and the remainder are exactly the cost", () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(cost, multiplier), { maxLength: 60 }), (charges) => {
        let holding = { balance: Number.MAX_SAFE_INTEGER, remainder: 0 };
        let taken = 0n;
        let owed = 0n;
        for (const [costNanoUsd, multiplierMicros] of charges) {
          const charged = charge(holding, exactPoints({ costNanoUsd, pointsPerUsd: 100, multiplierMicros })!);
          holding = charged;
          taken += BigInt(charged.points);
          owed += costNanoUsd * 100n * BigInt(multiplierMicros);
          expect(charged.points).toBeGreaterThanOrEqual(0);
          expect(Math.abs(holding.remainder)).toBeLessThanOrEqual(FEMTO_PER_POINT / 2);
        }
        expect(taken * BigInt(FEMTO_PER_POINT) + BigInt(holding.remainder)).toBe(owed);
      }),
    );
  });

  test("a thousand requests of a thousandth of a point cost one point, not nothing", () => {
    let holding = { balance: 5, remainder: 0 };
    const exact = exactPoints({ costNanoUsd: 10_000n, pointsPerUsd: 100, multiplierMicros: 1_000_000 })!;
    for (let request = 0; request < 1_000; request++) holding = charge(holding, exact);
    expect(holding).toMatchObject({ balance: 4, remainder: 0 });
  });

  test("an empty account covers nothing, not even what rounds to zero", () => {
    const little = exactPoints({ costNanoUsd: 1n, pointsPerUsd: 100, multiplierMicros: 1_000_000 })!;
    expect(charge({ balance: 0, remainder: 0 }, little).isCovered).toBe(false);
    expect(charge({ balance: 1, remainder: 0 }, little)).toMatchObject({
      points: 0,
      balance: 1,
      isCovered: true,
    });
  });

  test("what was rounded up before is still there to draw on", () => {
    const fourTenths = exactPoints({
      costNanoUsd: 4_000_000n,
      pointsPerUsd: 100,
      multiplierMicros: 1_000_000,
    })!;
    let holding = { balance: 4, remainder: 0 };
    let covered = 0;
    for (
      let charged = charge(holding, fourTenths);
      charged.isCovered;
      charged = charge(holding, fourTenths)
    ) {
      holding = charged;
      covered++;
    }
    expect(covered).toBe(10);
  });

  test("what the account lacks is owed; taken and owed together are the charge", () => {
    fc.assert(
      fc.property(cost, multiplier, fc.nat(200), (costNanoUsd, multiplierMicros, balance) => {
        const exact = exactPoints({ costNanoUsd, pointsPerUsd: 100, multiplierMicros })!;
        const charged = charge({ balance, remainder: 0 }, exact);
        expect(charged.balance).toBe(balance - (charged.points - charged.owed));
        expect(charged.balance).toBeGreaterThanOrEqual(0);
        expect(charged.owed).toBe(Math.max(0, charged.points - balance));
        if (charged.owed > 0) expect(charged.balance).toBe(0);
      }),
    );
  });

  test("an amount beyond any balance is refused, not overflowed", () => {
    expect(
      exactPoints({ costNanoUsd: 10n ** 20n, pointsPerUsd: 1_000_000, multiplierMicros: 1_000_000_000 }),
    ).toBeNull();
  });
});
