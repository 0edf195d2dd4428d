/** Loaded by scripts/run.ts into its script: when run.ts was killed, the script's whole process group ends too. */
import { rmSync } from "node:fs";
import { tmpdir } from "node:os";

const LOOK_EVERY_MS = 1_000;
const parent = process.ppid;

setInterval(() => {
  if (process.ppid === parent) return;
  rmSync(tmpdir(), { recursive: true, force: true });
  // The group of this process, and so this process itself.
  process.kill(0, "SIGKILL");
}, LOOK_EVERY_MS).unref();
