import { expect, test } from "bun:test";
import { InProcessBus } from "../../src/bus/in-process/bus.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { createLedger, verifyLedger } from "../../src/rooms/ledger/index.ts";
import { ManualClock } from "../support/clock.ts";
import { onEachDatabase, withDatabase } from "../support/databases.ts";

onEachDatabase("settlement", (fresh) => {
  test("smoke", () =>
    withDatabase(fresh, async (db) => {
      const ledger = createLedger({ db, bus: new InProcessBus(), clock: new ManualClock(), ids: randomIds, pointsPerUsd: 100 });
      const account = { type: "group", id: crypto.randomUUID() } as const;
      const now = "2026-11-15T12:00:00.000Z";
      await ledger.transaction((tx) => ledger.topup(tx, account, { points: 10, note: "x", actor: "me" }));
      const settled = await ledger.transaction((tx) =>
        ledger.settleBatch(tx, [1, 2, 3, 3, 4].map((n) => ({ account, requestId: `r${n}`, costNanoUsd: 14_000_000n * BigInt(n), multiplierMicros: 1_000_000, now }))),
      );
      console.log(settled, await ledger.statement(account), ledger.balances.peek(account));
      expect(await verifyLedger(db)).toMatchObject({ ok: true, problems: [] });
    }));
});
