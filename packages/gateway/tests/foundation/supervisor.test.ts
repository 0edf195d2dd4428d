import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Supervisor } from "../../src/app/workers/supervisor.ts";
import { readConfig } from "../../src/config.ts";
import { silentLog } from "../../src/kernel/log.ts";

/** A worker that says what no worker says, and then that it is ready. */
const BABBLER = `
  for (const nonsense of [null, 5, "text", [], {}]) process.send(nonsense);
  process.on("message", (message) => {
    if (message.start) process.send({ ready: { url: "http://here", port: 1, introduction: "hello" } });
    if (message.drain) process.exit(0);
  });
`;

test("a worker that sends nonsense does not end its supervisor", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "supervisor-"));
  try {
    const read = readConfig({ SERVICE_DATA_DIR: dataDir, SERVICE_WORKERS: "2" });
    if ("problems" in read) throw new Error(read.problems.join("\n"));
    const command = [process.execPath, "-e", BABBLER];
    const supervisor = await Supervisor.start({ config: read.config, log: silentLog, command });
    expect(supervisor).toMatchObject({ url: "http://here", introduction: "hello" });
    await supervisor.drain();
  } finally {
    rmSync(dataDir, { recursive: true, force: true });
  }
});
