import { ManualClock } from "@model-gateway/testing/clock.ts";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { type AccountRef, Ledger, type Settled, type Settlement } from "../../src/rooms/ledger/index.ts";
import type { Database } from "../../src/storage/contract.ts";

const NOW_MS = Date.UTC(2026, 10, 15, 12);
export const POINTS_PER_USD = 100;
/** What one point costs, in nano-dollars. */
export const NANO_PER_POINT = 10_000_000n;

export const wallet = (): AccountRef => ({ type: "user", id: crypto.randomUUID() });
export const pool = (): AccountRef => ({ type: "group", id: crypto.randomUUID() });

export interface Bench {
  ledger: Ledger;
  bus: InProcessBus;
  clock: ManualClock;
  topup(account: AccountRef, points: number): Promise<number>;
  settle(...items: Partial<Settlement>[]): Promise<Settled[]>;
  balance(account: AccountRef): Promise<number>;
}

/** A ledger on `db` with short ways to use it. */
export function onLedger(db: Database, bus = new InProcessBus()): Bench {
  const clock = new ManualClock();
  const ledger = new Ledger({ db, bus, clock, ids: randomIds, pointsPerUsd: POINTS_PER_USD });
  return {
    ledger,
    bus,
    clock,
    topup: (account, points) =>
      ledger.transaction((tx) => ledger.topup(tx, account, { points, note: null, actor: "test" })),
    settle: (...items) => ledger.transaction((tx) => ledger.settleBatch(tx, items.map(settlement))),
    balance: async (account) => (await ledger.statement(account)).balance,
  };
}

export const settlement = (item: Partial<Settlement>): Settlement => ({
  account: wallet(),
  userId: item.account?.type === "user" ? item.account.id : crypto.randomUUID(),
  requestId: crypto.randomUUID(),
  costNanoUsd: NANO_PER_POINT,
  multiplierMicros: 1_000_000,
  atMs: NOW_MS,
  ...item,
});
