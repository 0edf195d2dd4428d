import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Supervisor } from "../../src/app/workers/supervisor.ts";
import { readConfig } from "../../src/config.ts";
import { silentLog } from "../../src/kernel/log.ts";

const READY = `process.send({ ready: { url: "http://here", port: 1, introduction: "hello" } });`;

/** Two workers that are this program. */
async function supervised(program: string, run: (supervisor: Supervisor) => Promise<void>) {
  const dataDir = mkdtempSync(join(tmpdir(), "supervisor-"));
  try {
    const read = readConfig({ SERVICE_DATA_DIR: dataDir, SERVICE_WORKERS: "2" });
    if ("problems" in read) throw new Error(read.problems.join("\n"));
    const command = [process.execPath, "-e", program];
    const supervisor = await Supervisor.start({ config: read.config, log: silentLog, command });
    try {
      await run(supervisor);
    } finally {
      await supervisor.drain();
    }
  } finally {
    rmSync(dataDir, { recursive: true, force: true });
  }
}

test("a worker that sends nonsense does not end its supervisor", async () => {
  const babbler = `
    for (const nonsense of [null, 5, "text", [], {}]) process.send(nonsense);
    process.on("message", (message) => {
      if (message.start) ${READY}
      if (message.drain) process.exit(0);
    });
  `;
  await supervised(babbler, async (supervisor) => {
    expect(supervisor).toMatchObject({ url: "http://here", introduction: "hello" });
  });
});
