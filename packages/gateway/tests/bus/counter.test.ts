/** The same grants, whether one process counts them or several through Redis or their supervisor. */
import { afterAll, describe, expect, test } from "bun:test";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import {
  type Asking,
  type Counter,
  grantedAmount,
  NO_LIMIT,
  type Purse,
  type Quantity,
  REFUSED,
} from "../../src/bus/contract.ts";
import { openBus } from "../../src/bus/index.ts";
import { WorkerHub } from "../../src/bus/workers/hub.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";

const redisUrl = process.env.TEST_REDIS_URL;
const cleanups: (() => Promise<unknown>)[] = [];
afterAll(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

/** Instances that share what they reserve. */
type Open = () => Promise<Counter[]>;

async function open(url: string | null, supervisorPath: string | null = null): Promise<Counter> {
  const { counter, close } = await openBus({
    redisUrl: url,
    service: `test ${process.pid}`,
    supervisorPath,
    clock: systemClock,
    ids: randomIds,
    log: silentLog,
  });
  cleanups.push(close);
  return counter;
}

const NOTHING: Quantity = { money: 0, tokens: 0 };
let made = 0;
const fresh = () => `name ${process.pid} ${++made}`;

const purse = (name: string, limit: Partial<Quantity>, more: Partial<Purse> = {}): Purse => ({
  name,
  limit: { money: NO_LIMIT, tokens: NO_LIMIT, ...limit },
  spent: { ...NOTHING, version: 0 },
  unitsBeyond: null,
  ...more,
});
const asking = (purses: Purse[], more: Partial<Asking> = {}): Asking => ({
  purses,
  alsoOn: [],
  fixed: NOTHING,
  perUnit: { money: 1, tokens: 0 },
  unitsMin: 1,
  unitsMax: 1,
  ...more,
});
const units = (unitsMin: number, unitsMax: number) => ({ unitsMin, unitsMax });

function reservationTests(openAll: Open): void {
  test("grant as many units as fit, and none below the least", async () => {
    const [a, b] = await openAll();
    const name = fresh();
    const ten = purse(name, { money: 10 });
    expect(await a!.grant(asking([ten], units(1, 4)))).toBe(4);
    expect(await b!.grant(asking([ten], { ...units(1, 9), fixed: { money: 2, tokens: 0 } }))).toBe(4);
    expect(await a!.grant(asking([ten], units(1, 1)))).toBe(REFUSED);
    expect(await b!.grant(asking([ten], units(0, 5)))).toBe(0);
  });

  test("fit every purse at once, in both measures, and reserve on all names or on none", async () => {
    const [a, b] = await openAll();
    const [first, second, counted] = [fresh(), fresh(), fresh()];
    const purses = [purse(first, { money: 100, tokens: 50 }), purse(second, { money: 60 })];
    const perUnit = { money: 2, tokens: 1 };
    const both = asking(purses, { alsoOn: [counted], perUnit, ...units(1, 1_000) });
    expect(await a!.grant(both)).toBe(30);
    expect(await b!.grant(both)).toBe(REFUSED);
    // The first has 40 left: what was refused by the second was not taken from it.
    expect(await b!.grant(asking([purse(first, { money: 100 })], units(1, 1_000)))).toBe(40);
    // 30 tokens of the 100 that are counted there, and 60 of money.
    const there = purse(counted, { money: 61, tokens: 100 });
    expect(await a!.grant(asking([there], { perUnit: { money: 0, tokens: 1 }, ...units(1, 1_000) }))).toBe(
      70,
    );
    expect(await b!.grant(asking([there], units(1, 9)))).toBe(1);
    expect(await a!.grant(asking([there], units(1, 9)))).toBe(REFUSED);
  });

  test("may go beyond a purse that allows it while something is left, and once only", async () => {
    const [a, b] = await openAll();
    const quota = purse(fresh(), { money: 100, tokens: 100 }, { unitsBeyond: 10 });
    const perUnit = { money: 1, tokens: 1 };
    const of = (fixed: number, most: number) =>
      asking([quota], { fixed: { money: fixed, tokens: fixed }, perUnit, ...units(1, most) });
    // More than what is left and what may be beyond: not for the first either.
    expect(await a!.grant(of(110, 5))).toBe(REFUSED);
    expect(await a!.grant(of(50, 49))).toBe(49);
    expect(await b!.grant(of(0, 500))).toBe(11);
    for (const one of [a!, b!]) expect(await one.grant(of(0, 1))).toBe(REFUSED);
  });

  test("give back, and what was spent meanwhile counts by its version", async () => {
    const [a, b] = await openAll();
    const name = fresh();
    const at = (money: number, version: number) =>
      purse(name, { money: 10 }, { spent: { money, tokens: 0, version } });
    expect(await a!.grant(asking([at(0, 1)], units(10, 10)))).toBe(10);
    a!.change([{ name, amount: { money: -10, tokens: 0 }, spent: { money: 7, tokens: 0, version: 2 } }]);
    // Asked at once, and by an instance that has read the newer state itself or not yet.
    expect(await a!.grant(asking([at(7, 2)], units(1, 10)))).toBe(3);
    expect(await b!.grant(asking([at(7, 2)], units(1, 10)))).toBe(REFUSED);
  });

  test("fractions of a unit add up to whole numbers, and leave nothing behind", async () => {
    const [a] = await openAll();
    const eleven = purse(fresh(), { money: 11_000_000_000 });
    const tenth = asking([eleven], { fixed: { money: 1e9 * 1.1, tokens: 0 }, ...units(0, 0) });
    for (let i = 0; i < 10; i++) expect(await a!.grant(tenth)).toBe(0);
    expect(await a!.grant(tenth)).toBe(REFUSED);
    const amount = grantedAmount(tenth, 0);
    for (let i = 0; i < 10; i++)
      a!.change([{ name: eleven.name, amount: { money: -amount.money, tokens: 0 } }]);
    const all = asking([eleven], units(11_000_000_000, 11_000_000_000));
    expect(await a!.grant(all)).toBe(11_000_000_000);
  });

  test("agree with the arithmetic whatever is asked, by whichever instance", async () => {
    const instances = await openAll();
    const quantity = fc.record({ money: fc.nat(40), tokens: fc.nat(40) });
    const step = fc.record({
      by: fc.nat(10),
      on: fc.uniqueArray(fc.nat(2), { minLength: 1 }),
      also: fc.nat(2),
      fixed: quantity,
      perUnit: fc.record({ money: fc.constantFrom(0, 0.25, 1, 3.5), tokens: fc.constantFrom(0, 1) }),
      least: fc.nat(6),
      most: fc.nat(30),
      beyond: fc.option(fc.nat(8)),
      release: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 25 }), async (steps) => {
        const names = [fresh(), fresh(), fresh()];
        const held = names.map(() => ({ ...NOTHING }));
        const limit = { money: 120, tokens: 90 };
        for (const { by, on, also, fixed, perUnit, least, most, beyond, release } of steps) {
          const instance = instances[by % instances.length]!;
          const alsoOn = on.includes(also) ? [] : [names[also]!];
          const one = asking(
            on.map((n) => purse(names[n]!, limit, { unitsBeyond: beyond })),
            { alsoOn, fixed, perUnit, unitsMin: least, unitsMax: Math.max(least, most) },
          );
          const expected = expectedGrant(
            one,
            on.map((n) => held[n]!),
          );
          expect(await instance.grant(one)).toBe(expected);
          if (expected === REFUSED) continue;
          const amount = grantedAmount(one, expected);
          const touched = [...on, ...(alsoOn.length > 0 ? [also] : [])];
          const sign = release ? 0 : 1;
          for (const n of touched) {
            held[n]!.money += sign * amount.money;
            held[n]!.tokens += sign * amount.tokens;
          }
          if (release) {
            const back = { money: -amount.money, tokens: -amount.tokens };
            instance.change(touched.map((n) => ({ name: names[n]!, amount: back })));
          }
          // What is changed without asking another instance sees after a moment; this one at once.
          if (instances.length > 1 && (release || alsoOn.length > 0)) await Bun.sleep(8);
        }
      }),
      { numRuns: instances.length > 1 ? 25 : 300 },
    );
  });
}

/** By trying every number of units from the top. */
function expectedGrant(
  { purses, fixed, perUnit, unitsMin, unitsMax }: Asking,
  held: readonly Quantity[],
): number {
  const fits = (count: number) =>
    purses.every(({ limit, unitsBeyond }, i) =>
      (["money", "tokens"] as const).every((measure) => {
        const left = limit[measure] - held[i]![measure];
        if (unitsBeyond !== null && left <= 0) return false;
        const room = unitsBeyond === null ? left : Math.floor(left + unitsBeyond * perUnit[measure]);
        return fixed[measure] + count * perUnit[measure] <= room;
      }),
    );
  for (let count = unitsMax; count >= unitsMin; count--) if (fits(count)) return count;
  return REFUSED;
}

describe("reservations of one process", () =>
  reservationTests(async () => {
    const alone = await open(null);
    return [alone, alone];
  }));

describe.if(redisUrl !== undefined)("reservations over Redis", () =>
  reservationTests(() => Promise.all([open(redisUrl!), open(redisUrl!)])),
);

describe("reservations of workers", () =>
  reservationTests(async () => {
    const path = join(tmpdir(), `${crypto.randomUUID()}.sock`);
    const hub = new WorkerHub({ path, clock: systemClock, log: silentLog });
    cleanups.push(async () => hub.close());
    return Promise.all([open(null, path), open(null, path)]);
  }));
