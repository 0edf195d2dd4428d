/** Waits until nothing else keeps the machine busy, so that a shared one gives figures that can be compared. */
import { readFileSync } from "node:fs";

const idleShareMin = 0.9;
const lookMs = 500;
const waitMsMax = 20_000;

function cpuTimes(): { idle: number; all: number } {
  const fields = readFileSync("/proc/stat", "utf8").split("\n")[0]!.split(/\s+/).slice(1).map(Number);
  return { idle: fields[3]! + fields[4]!, all: fields.reduce((sum, each) => sum + each, 0) };
}

/** Gives up after a while: a machine that is never idle still gives figures, which its load explains. */
export async function untilQuiet(): Promise<void> {
  if (process.platform !== "linux") return;
  const end = performance.now() + waitMsMax;
  while (performance.now() < end) {
    const before = cpuTimes();
    await Bun.sleep(lookMs);
    const after = cpuTimes();
    if ((after.idle - before.idle) / (after.all - before.all) >= idleShareMin) return;
  }
}
