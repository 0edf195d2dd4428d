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

/**
 * Everything that a tool has started: what is below it, and what carries its mark wherever it went (a daemon of
 * its own belongs to its cost). Browsers apart.
 */
export function pidsOf({ child, mark }: { child: { pid?: number }; mark: string }): {
  own: number[];
  browsers: number[];
} {
  const all = allProcesses();
  const found = new Set(
    all.filter(({ pid }) => pid === child.pid || carries(pid, mark)).map(({ pid }) => pid),
  );
  for (let grown = true; grown; ) {
    grown = false;
    for (const entry of all) {
      if (!found.has(entry.parentPid) || found.has(entry.pid)) continue;
      found.add(entry.pid);
      grown = true;
    }
  }
  const entries = all.filter(({ pid }) => found.has(pid));
  const isBelowBrowser = new Set<number>();
  for (let grown = true; grown; ) {
    grown = false;
    for (const entry of entries) {
      if (isBelowBrowser.has(entry.pid)) continue;
      if (!isBrowser(entry) && !isBelowBrowser.has(entry.parentPid)) continue;
      isBelowBrowser.add(entry.pid);
      grown = true;
    }
  }
  return {
    own: [...found].filter((pid) => !isBelowBrowser.has(pid)),
    browsers: [...isBelowBrowser],
  };
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
