import { expect, test } from "bun:test";
import { onEachDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { LEDGER_CHANGED } from "../../src/kernel/topics.ts";
import type { BalanceChange } from "../../src/rooms/ledger/index.ts";
import { onLedger, pool, settlement } from "./support.ts";

onEachDatabase("balances held in memory", (fresh) => {
  test("follow every commit on every instance, and nothing before it", () =>
    withDatabase(fresh, async (db) => {
      const here = onLedger(db);
      const there = onLedger(db, here.bus);
      const account = pool();
      expect(here.ledger.balances.peek(account)).toBeNull();
      expect(await here.ledger.balance(account)).toMatchObject({ balance: 0, everCredited: false });
      await here.topup(account, 10);
      expect(there.ledger.balances.peek(account)).toMatchObject({ balance: 10, everCredited: true });
      await here.ledger.options.db
        .transaction(async (tx) => {
          await here.ledger.settleBatch(tx, [settlement({ account })]);
          expect(there.ledger.balances.peek(account)).toMatchObject({ balance: 10 });
          return tx;
        })
        .then((tx) => here.ledger.publish(here.ledger.takeChanges(tx)));
      expect(there.ledger.balances.peek(account)).toMatchObject({ balance: 9 });
    }));

  test("ignore news that is older than what is known, and forget what nothing confirms", () =>
    withDatabase(fresh, async (db) => {
      const { ledger, bus, topup, clock } = onLedger(db);
      const account = pool();
      const heard: string[] = [];
      bus.subscribe(LEDGER_CHANGED, (message) => heard.push(message));
      await topup(account, 10);
      await topup(account, 10);
      expect(heard.map((text) => (JSON.parse(text) as BalanceChange).balance)).toEqual([10, 20]);
      bus.publish(LEDGER_CHANGED, heard[0]!);
      expect(ledger.balances.peek(account)).toMatchObject({ balance: 20 });
      clock.advance(31_000);
      expect(ledger.balances.peek(account)).toBeNull();
      expect(await ledger.balances.load(account)).toMatchObject({ balance: 20, everCredited: true });
      clock.nowMs -= 3_600_000;
      expect(ledger.balances.peek(account)).toBeNull();
    }));
});
