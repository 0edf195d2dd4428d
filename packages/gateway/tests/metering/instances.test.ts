import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { verifyLedger } from "../../src/rooms/ledger/index.ts";
import { openStorage } from "../../src/storage/index.ts";
import { centRequest, centUsage, openBench, payer } from "./support.ts";

const INSTANCES = 3;
const REQUESTS_EACH = 300;
const POOL_POINTS = 100;

onEachDatabase("several instances on one database", (fresh) => {
  test("write the same rollups and draw on the same pool without losing or doubling anything", async () => {
    const { options, drop } = await fresh();
    const dirs = Array.from({ length: INSTANCES }, () => mkdtempSync(join(tmpdir(), "gateway-instance-")));
    const databases = await Promise.all(dirs.map(() => openStorage(options)));
    const benches = await Promise.all(
      databases.map((db, i) => openBench({ db, dataDir: dirs[i]!, clock: systemClock, threadOn: options })),
    );
    try {
      const groupId = crypto.randomUUID();
      await benches[0]!.topup({ type: "group", id: groupId }, POOL_POINTS);
      const payers = [payer({ groupId, tier: "enterprise" }), payer({ tier: "enterprise" })];
      await Promise.all(
        benches.map(async ({ metering }) => {
          for (let n = 0; n < REQUESTS_EACH; n++) {
            const admission = await metering.admit({ ...centRequest(payers[n % 2]!), refId: `ref-${n % 5}` });
            admission.settle(centUsage());
            if (n % 20 === 0) await Bun.sleep(1);
          }
          expect(await metering.flush(60_000)).toBe(true);
        }),
      );
      const [{ db, usage, ledger }] = benches as [(typeof benches)[number]];
      const rows = await benches[0]!.rows();
      expect(rows).toHaveLength(INSTANCES * REQUESTS_EACH);
      expect(rows.filter(({ points }) => points === 1)).toHaveLength(POOL_POINTS);
      expect((await ledger.statement({ type: "group", id: groupId })).balance).toBe(0);
      expect((await verifyLedger(db)).problems).toEqual([]);
      const { totals, groups } = await usage.query({ group_by: "ref" });
      expect(totals).toMatchObject({ requests: rows.length, cost_usd: rows.length / 100 });
      expect(groups!.map(({ requests }) => requests)).toEqual(Array(5).fill(rows.length / 5));
    } finally {
      for (const bench of benches) await bench.close();
      for (const db of databases) await db.close();
      for (const dir of dirs) rmSync(dir, { recursive: true, force: true });
      await drop();
    }
  });
});
