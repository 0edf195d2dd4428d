/** What a tool has running: its process tree, its memory, and what outlives it. */
import { readdirSync, readFileSync } from "node:fs";

interface Entry {
  pid: number;
  parentPid: number;
  command: string;
}

function allProcesses(): Entry[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      if (fields[0] === "Z") return [];
      const command = readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " ");
      return [{ pid: Number(name), parentPid: Number(fields[1]), command }];
    } catch {
      return [];
    }
  });
}

const browserNames = /^(chromium|chrome|chrome-headless-shell|chrome_crashpad_handler)$/;
const isBrowser = ({ command }: Entry) => browserNames.test(command.split(" ")[0]?.split("/").pop() ?? "");

/** Every process inherits the environment of what started it, however far it has wandered off since. */
function carries(pid: number, mark: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1").includes(mark);
  } catch {
    return false;
  }
}

/** Browser processes that were started, directly or not, with this mark in their environment. */
export function browsersOf(mark: string): number[] {
  return allProcesses()
    .filter((entry) => isBrowser(entry) && carries(entry.pid, mark))
    .map(({ pid }) => pid);
}

/** The tool's own processes: everything below (and including) `pid` that is not the browser. */
export function ownPids(pid: number): number[] {
  const all = allProcesses();
  const found = new Set([pid]);
  for (let grown = true; grown; ) {
    grown = false;
    for (const entry of all) {
      if (!found.has(entry.parentPid) || found.has(entry.pid) || isBrowser(entry)) continue;
      found.add(entry.pid);
      grown = true;
    }
  }
  return [...found];
}

export function residentMegabytes(pids: number[]): number {
  let kilobytes = 0;
  for (const pid of pids) {
    try {
      kilobytes += Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0);
    } catch {
      // It ended meanwhile and uses nothing.
    }
  }
  return kilobytes / 1_024;
}

export function endAll(pids: number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // Already gone.
    }
  }
}
