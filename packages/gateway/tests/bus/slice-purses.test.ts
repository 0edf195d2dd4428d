/** Slices of purses: what an instance that stops has spent, and what it keeps from others while it is busy. */
import { beforeEach, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { REFUSED, type Spent } from "../../src/bus/contract.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { MemoryPurses } from "../../src/bus/slices/memory-purses.ts";
import { PurseGroup } from "../../src/bus/slices/purse-group.ts";
import { SlicedReservations } from "../../src/bus/slices/reservations.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";

const LIMIT = { money: 1_000, tokens: Number.POSITIVE_INFINITY };
const NOTHING_SPENT: Spent = { money: 0, tokens: 0, version: 0 };
let clock: ManualClock;
let purses: MemoryPurses;
beforeEach(() => {
  clock = new ManualClock();
  purses = new MemoryPurses(clock);
});

/** An instance on a bus of its own: nobody hears of recalls. */
async function instance(): Promise<SlicedReservations> {
  const server = {
    available: true,
    hold: async (...asked: Parameters<MemoryPurses["hold"]>) => purses.hold(...asked),
    enter: async (...asked: Parameters<MemoryPurses["enter"]>) => purses.enter(...asked),
    beat: async (as: string) => purses.beat(as),
    leave: async (as: string) => purses.leave(as),
  };
  const common = { bus: new InProcessBus(), clock, ids: randomIds, log: silentLog };
  const group = new PurseGroup({ ...common, server, group: 0 });
  const entered = group.enter();
  await settle();
  clock.advance(50);
  await entered;
  return new SlicedReservations([group], () => 0);
}

async function settle(): Promise<void> {
  for (let i = 0; i < 20; i++) await null;
}

const grant = async (reservations: SlicedReservations, money: number): Promise<number> =>
  reservations.grant({
    purses: [{ name: "p", limit: LIMIT, spent: NOTHING_SPENT, unitsBeyond: null }],
    alsoOn: [],
    fixed: { money, tokens: 0 },
    perUnit: { money: 0, tokens: 0 },
    unitsMin: 0,
    unitsMax: 0,
  });

/** Settles a request that was granted 600. */
function settled600(reservations: SlicedReservations): void {
  reservations.change([
    { name: "p", amount: { money: -600, tokens: 0 } },
    { name: "p", amount: { money: 0, tokens: 0 }, spent: { money: 600, tokens: 0, version: 1 } },
  ]);
}

test("what is spent is told at once: its process may be killed, and what it held freed", async () => {
  const [dies, stays] = [await instance(), await instance()];
  expect(await grant(dies, 600)).toBe(0);
  const [as] = [...purses.purses.get("p")!.held.keys()];
  settled600(dies);
  await settle();
  purses.leave(as!);
  expect(await grant(stays, 401)).toBe(REFUSED);
});

test("what an instance has spent just before it stops is told", async () => {
  const [stops, stays] = [await instance(), await instance()];
  expect(await grant(stops, 600)).toBe(0);
  settled600(stops);
  await stops.close();
  // It has read what is spent before that.
  expect(await grant(stays, 401)).toBe(REFUSED);
  expect(await grant(stays, 400)).toBe(0);
});

test("where a recall is lost, a busy instance's slice can be had within a second of its last request", async () => {
  const [busy, other] = [await instance(), await instance()];
  for (let i = 0; i < 4; i++) {
    expect(await grant(busy, 1)).toBe(0);
    clock.advance(100);
    await settle();
  }
  const all = async () => {
    const granted = grant(other, 996);
    await settle();
    clock.advance(25);
    return granted;
  };
  expect(await all()).toBe(REFUSED);
  clock.advance(975);
  await settle();
  expect(await all()).toBe(0);
});
