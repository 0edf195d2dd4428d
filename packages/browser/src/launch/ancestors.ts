/**
 * Ends the tool when the process that started it is gone. The parent alone is not enough: `npm run` and `npx` put a
 * shell between themselves and the tool, and killing npm leaves that shell alive.
 */
import { readFileSync } from "node:fs";

const ancestorsMax = 6;
const pollMs = 250;

interface ProcessEntry {
  pid: number;
  parentPid: number;
  command: string[];
}

function readProcess(pid: number): ProcessEntry | null {
  try {
    if (process.platform === "linux") {
      const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
      // The command name may itself hold spaces and parentheses; the fields follow its last one.
      const parentPid = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
      const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").filter(Boolean);
      return { pid, parentPid, command };
    }
    const { stdout } = Bun.spawnSync(["ps", "-o", "ppid=,command=", "-p", String(pid)]);
    const match = /^\s*(\d+)\s+(.*)$/s.exec(stdout.toString().trim());
    return match ? { pid, parentPid: Number(match[1]), command: match[2]!.split(" ") } : null;
  } catch {
    return null;
  }
}

/** A process that only passes the start on: a `sh -c`, npm, npx or another package runner. */
function isLauncher({ command }: ProcessEntry): boolean {
  const name = (part: string | undefined) => part?.split("/").pop() ?? "";
  const program = name(command[0]);
  if (/^(sh|dash|bash|zsh|ash)$/.test(program)) return command.slice(1).some((part) => /^-\w*c$/.test(part));
  const runner = /^(npm|npx|pnpm|yarn|bunx)(\b|-cli)/;
  return runner.test(program) || (/^(node|bun)/.test(program) && runner.test(name(command[1])));
}

/** The parent, and above it every launcher and what started the outermost launcher's shell. */
export function launchingProcesses(): number[] {
  const pids: number[] = [];
  let pid = process.ppid;
  while (pid > 1 && pids.length < ancestorsMax) {
    const entry = readProcess(pid);
    if (!entry) break;
    pids.push(pid);
    if (!isLauncher(entry)) break;
    pid = entry.parentPid;
  }
  return pids;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** Calls `onGone` once when any launching process has died. Returns a function that stops watching. */
export function watchLaunchingProcesses(onGone: (pid: number) => void): () => void {
  const parentPid = process.ppid;
  const pids = launchingProcesses();
  const timer = setInterval(() => {
    const gone = process.ppid !== parentPid ? parentPid : pids.find((pid) => !isAlive(pid));
    if (gone === undefined) return;
    clearInterval(timer);
    onGone(gone);
  }, pollMs);
  timer.unref();
  return () => clearInterval(timer);
}
