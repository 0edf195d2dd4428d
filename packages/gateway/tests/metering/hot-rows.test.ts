/** One pool that many instances spend from: what it pays stays exact. */
import { describe, expect, test } from "bun:test";
import { cpSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { freshDatabase, withDatabase } from "@model-gateway/testing/databases.ts";
import { settlerOn } from "../../src/app/journal-thread/worker.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import type { Settler } from "../../src/rooms/metering/index.ts";
import { openBench, POINTS_PER_USD, payer, spend } from "./support.ts";

const INSTANCES = 12;
const STEP_MS = 500;
const STEPS = 24;
const POOL = { type: "group", id: "00000000-0000-4000-8000-000000000001" } as const;

/** Knows how many orders are being worked on. */
class Watched {
  underWay = 0;
  on(inner: Settler): Settler {
    return {
      settle: async (order) => {
        this.underWay++;
        try {
          return await inner.settle(order);
        } finally {
          this.underWay--;
        }
      },
    };
  }
  /** Nothing is being settled, and nothing is about to be. */
  async quiet(): Promise<void> {
    for (let quietTurns = 0; quietTurns < 5; quietTurns++) {
      await new Promise((resolve) => setImmediate(resolve));
      if (this.underWay > 0) quietTurns = 0;
    }
  }
}

describe.if(process.env.TEST_POSTGRES_URL !== undefined)("a pool that all spend from", () => {
  test("everything is paid once, also what a dead instance left", () =>
    withDatabase(
      () => freshDatabase("postgres"),
      async (db) => {
        const dir = mkdtempSync(join(tmpdir(), "gateway-hot-"));
        const clock = new ManualClock(Date.now());
        const watched = new Watched();
        const open = (name: string) =>
          openBench({
            db,
            dataDir: join(dir, name),
            clock,
            settler: watched.on(settlerOn(db, POINTS_PER_USD)),
          });
        const benches = await Promise.all(Array.from({ length: INSTANCES }, (_, i) => open(`i${i}`)));
        await benches[0]!.topup(POOL, 1_000_000);
        const who = payer({ groupId: POOL.id });
        let spent = 0;
        const step = async () => {
          for (const bench of benches) {
            await spend(bench, who);
            spent++;
          }
          clock.advance(STEP_MS);
          await watched.quiet();
        };
        for (let n = 0; n < STEPS; n++) await step();

        // What a process that is killed leaves: its files, which another one finds. This one goes on as well.
        const journal = join(dir, "i0", "journal");
        await spend(benches[0]!, who);
        spent++;
        expect(benches[0]!.metering.figures.rows).toBeGreaterThan(0);
        for (const file of readdirSync(journal).filter((name) => name.endsWith(".jsonl")))
          cpSync(join(journal, file), join(dir, "heir", "journal", file));
        const heir = await open("heir");
        let left = benches.length + 1;
        const closing = [heir, ...benches].map((bench) => bench.close().then(() => left--));
        while (left > 0) {
          clock.advance(200);
          await watched.quiet();
        }
        await Promise.all(closing);

        expect((await heir.rows()).length).toBe(spent);
        const pool = await db.get(`SELECT balance FROM ledger_accounts WHERE id = 'group:${POOL.id}'`);
        expect(pool).toEqual({ balance: 1_000_000 - spent });
        const months = await db.get<{ requests: number }>(
          "SELECT CAST(SUM(requests) AS BIGINT) AS requests FROM usage_months WHERE project = ''",
        );
        expect(months).toEqual({ requests: spent });
        expect((await verifyLedger(db)).problems).toEqual([]);
        rmSync(dir, { recursive: true, force: true });
      },
    ));
});
