/** Another process holds the database's write lock: administrators get their answers, and nothing is lost. */
import { Database } from "bun:sqlite";
import { afterEach, expect, test } from "bun:test";
import { cpSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deploymentOfRun } from "@model-gateway/testing/deployment.ts";
import { until } from "@model-gateway/testing/until.ts";
import { SQLITE_FILE } from "../../src/storage/index.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

const ANSWERED_WITHIN_MS = 1_000;

/** The lock is SQLite's, which instances do not use. */
const onSqlite = deploymentOfRun === "instances" ? test.skip : test;

let bench: InferenceBench;
afterEach(() => bench.stop());

onSqlite(
  "backends and aliases are registered within a second; the list and the audit log follow",
  async () => {
    bench = await bootInference();
    const other = new Database(join(bench.dataDir, SQLITE_FILE));
    other.run("BEGIN IMMEDIATE");
    try {
      const backend = { name: "late", type: "external", url: bench.upstream.url, models: ["late-model"] };
      for (const [path, body] of [
        ["/backends", backend],
        ["/aliases", { alias: "short", target: "m" }],
      ] as const) {
        const startedMs = performance.now();
        expect((await bench.admin("POST", path, body)).status).toBe(200);
        expect(performance.now() - startedMs).toBeLessThan(ANSWERED_WITHIN_MS);
      }
      await until("it can be called", async () => (await bench.backends()).models.includes("late-model"));
    } finally {
      other.run("COMMIT");
      other.close();
    }
    const indexOf = async () =>
      (await bench.backends()).backends.health.find(({ name }: { name: string }) => name === "late")?.index;
    await until("it has its index", async () => (await indexOf()) < 1_000);
    await until("the audit log has both", async () => {
      const { entries } = await bench.rpc("audit.list", {}, bench.token);
      const actions = entries.map(({ action }: { action: string }) => action).join();
      return actions.includes("/api/admin/aliases") && actions.split("/api/admin/backends").length > 2;
    });
  },
  60_000,
);

onSqlite("an entry of the audit log that the database did not take is there after a restart", async () => {
  bench = await bootInference();
  const { dataDir } = bench;
  const copy = mkdtempSync(join(tmpdir(), "slow-database-"));
  const other = new Database(join(dataDir, SQLITE_FILE));
  other.run("BEGIN IMMEDIATE");
  try {
    expect((await bench.admin("POST", "/aliases", { alias: "short", target: "m" })).status).toBe(200);
    // As the disk is if the process is killed now.
    cpSync(dataDir, copy, { recursive: true, filter: (path) => !/\.sock$|journal/.test(path) });
  } finally {
    other.run("COMMIT");
    other.close();
  }
  await bench.stop();
  bench = await bootInference({ dataDir: copy });
  await until("the audit log has it", async () => {
    const { entries } = await bench.rpc("audit.list", { action: "POST /api/admin/aliases" }, bench.token);
    return entries.length === 1;
  });
});
