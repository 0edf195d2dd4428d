/**
 * `bun scripts/run.ts <script> [argument …]`: runs a script that starts processes and fills folders, and leaves
 * nothing of either behind, whether it ends, fails or is killed.
 *
 * The script leads a process group and gets a temporary folder (TMPDIR) of its own. Signals are passed on to it;
 * once it has ended, the rest of its group is killed and the folder removed.
 */
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** How long a script may take to end after a signal. A cluster drains its instances for up to 40 s. */
const STOP_WITHIN_MS = 45_000;
const GONE_WITHIN_MS = 5_000;
const SIGNALED = 128;

const [script, ...args] = process.argv.slice(2);
if (!script) throw new Error("which script? bun scripts/run.ts <script> [argument …]");

const folder = mkdtempSync(join(tmpdir(), "model-gateway-"));
// Postgres does not run as root, and its cluster is further down.
chmodSync(folder, 0o711);
const child = Bun.spawn(
  [process.execPath, "--preload", join(import.meta.dir, "lib/orphan.ts"), script, ...args],
  {
    detached: true,
    env: { ...process.env, TMPDIR: folder },
    stdio: ["inherit", "inherit", "inherit"],
  },
);

/** A killed process may still write until it is gone. */
async function killGroup(): Promise<void> {
  const deadlineMs = Date.now() + GONE_WITHIN_MS;
  try {
    for (; Date.now() < deadlineMs; await Bun.sleep(10)) process.kill(-child.pid, "SIGKILL");
  } catch {
    // Nobody is left in it.
  }
}

let isStopping = false;
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
  process.on(signal, () => {
    // Asked twice, it ends at once.
    if (isStopping) return void killGroup();
    isStopping = true;
    child.kill(signal);
    setTimeout(killGroup, STOP_WITHIN_MS).unref();
  });

const code = await child.exited;
await killGroup();
rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
process.exit(child.signalCode === null ? code : SIGNALED);
