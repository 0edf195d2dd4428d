import { afterAll, expect, test } from "bun:test";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "@model-gateway/gateway/kernel/clock.ts";
import { openStorage } from "@model-gateway/gateway/storage/index.ts";
import { emptyDatabase, onEachDatabase } from "@model-gateway/testing/databases.ts";
import { centUsage, openBench, payer, spend } from "../../gateway/tests/metering/support.ts";
import { openShell } from "./support.ts";

const shell = openShell();
afterAll(() => shell.end());

onEachDatabase("a backup", (fresh, kind) => {
  test("is restored into a fresh place: rows, points and what was still in the journal", async () => {
    const { options, drop } = await fresh();
    const empty = await emptyDatabase(kind);
    const env = (dataDir: string, databaseUrl: string | null) => ({
      SERVICE_DATA_DIR: dataDir,
      ...(databaseUrl && { SERVICE_DATABASE_URL: databaseUrl }),
    });
    const db = await openStorage(options);
    const bench = await openBench({ db, dataDir: options.dataDir, clock: systemClock });
    const who = payer({ tier: "enterprise" });
    try {
      await bench.topup({ type: "user", id: who.userId }, 100);
      for (let i = 0; i < 20; i++) await spend(bench, who);
      expect(await bench.metering.flush(20_000)).toBe(true);
      // Journaled and not in the database at the moment of the backup: only the journal's copy has it.
      const late = { requestId: Bun.randomUUIDv7(), payer: who, model: "m", refId: null };
      await db.transaction(async (tx) => {
        await tx.lock("backup test");
        await tx.run("UPDATE usage_months SET requests = requests");
        bench.metering.record(late, centUsage());
        const made = await shell.run(["backup", join(shell.dir, `backup-${kind}`)], {
          env: env(options.dataDir, options.databaseUrl),
        });
        expect(made).toMatchObject({ code: 0, err: "" });
        expect(made.out).not.toContain(".lock");
      });
      const source = join(shell.dir, `backup-${kind}`);
      const running = await shell.run(["restore", source, "--force"], {
        env: env(options.dataDir, options.databaseUrl),
      });
      expect(running.err).toContain("a service is running");
      const target = join(shell.dir, `restored-${kind}`);
      const to = env(target, empty.options.databaseUrl);
      const restored = await shell.run(["restore", source, "--json"], { env: to });
      expect(restored.err).toBe("");
      expect(JSON.parse(restored.out)).toMatchObject({ ledger: { ok: true, problems: [] } });
      expect((await shell.run(["restore", source], { env: to })).err).toContain("--force");
      expect((await shell.run(["restore", source, "--force"], { env: to })).code).toBe(0);

      const copy = await openStorage({ dataDir: target, databaseUrl: empty.options.databaseUrl });
      expect(await copy.get("SELECT COUNT(*) AS n FROM usage_records")).toEqual({ n: 20 });
      const again = await openBench({ db: copy, dataDir: target, clock: systemClock });
      for (const deadline = Date.now() + 20_000; (await again.rows()).length < 21; await Bun.sleep(10))
        if (Date.now() > deadline) throw new Error("the journal's row is not there");
      const rows = await again.rows();
      expect(rows).toHaveLength(21);
      expect(rows.map(({ id }) => id)).toContain(late.requestId);
      expect((await again.ledger.statement({ type: "user", id: who.userId })).balance).toBe(80);
      await again.close();
      await copy.close();
    } finally {
      await bench.close();
      await db.close();
      await drop();
      await empty.drop();
    }
  });

  test("of the other kind, or none at all, is refused with the way out", async () => {
    const dir = join(shell.dir, `nothing-${kind}`);
    mkdirSync(dir);
    const { err, code } = await shell.run(["restore", dir], {
      env: { SERVICE_DATA_DIR: join(shell.dir, `target-${kind}`) },
    });
    expect(code).not.toBe(0);
    expect(err).toContain("SERVICE_DATABASE_URL");
    expect(readdirSync(dir)).toEqual([]);
  });
});
