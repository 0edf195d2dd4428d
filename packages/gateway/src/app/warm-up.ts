import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readConfig } from "../config.ts";
import { randomIds } from "../kernel/ids.ts";
import { silentLog } from "../kernel/log.ts";
import { type App, startApp } from "./index.ts";

const AFTER_MS = 1_000;
/** Folders older than this were left by killed processes. */
const LEFT_MS = 600_000;

/**
 * Code is several times as fast once the runtime has compiled it, after thousands of requests, which take a small team
 * days. They are sent, one at a time, to a second service in this process with its own folder, port and upstream.
 */
export function warmUpSoon({ log }: App, rounds: number): void {
  if (rounds === 0) return;
  setTimeout(async () => {
    const beganMs = performance.now();
    try {
      await warmUp(rounds);
      log.debug("warmed up", { ms: Math.round(performance.now() - beganMs) });
    } catch (error) {
      log.warn("warming up failed; the first requests take longer", { error });
    }
  }, AFTER_MS);
}

function openFolder(): { dataDir: string; remove(): void } {
  const prefix = "model-gateway-warm-up-";
  for (const name of readdirSync(tmpdir()).filter((each) => each.startsWith(prefix))) {
    const path = join(tmpdir(), name);
    if (statSync(path).mtimeMs < Date.now() - LEFT_MS) rmSync(path, { recursive: true, force: true });
  }
  const dataDir = mkdtempSync(join(tmpdir(), prefix));
  const remove = () => rmSync(dataDir, { recursive: true, force: true });
  process.once("exit", remove);
  return { dataDir, remove };
}

async function warmUp(rounds: number): Promise<void> {
  const { dataDir, remove } = openFolder();
  const adminToken = randomIds.uuid();
  const read = readConfig({
    SERVICE_PORT: "0",
    SERVICE_DATA_DIR: dataDir,
    SERVICE_ADMIN_TOKEN: adminToken,
    SERVICE_REGISTRATION_OPEN: "true",
    SERVICE_API_RATE_LIMIT_RPM: "1000000",
  });
  if ("problems" in read) throw new Error(read.problems.join("; "));
  const app = await startApp(read.config, { log: silentLog, localServers: [] });
  try {
    const { warmUp } = await import("@model-gateway/demo/warm-up.ts");
    await warmUp({ gatewayUrl: app.url, adminToken, rounds });
  } finally {
    await app.stop();
    remove();
  }
}
