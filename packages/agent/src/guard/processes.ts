/** Processes of this machine, as /proc shows them. Where there is no /proc the lists are empty. */
import { readdirSync, readFileSync } from "node:fs";

export interface ProcessInfo {
  pid: number;
  parentPid: number;
  groupId: number;
  state: string;
  /** In clock ticks since boot; with the pid it names a process for good. */
  startTicks: string;
}

/** Engines and all that they start carry this variable; its value begins with the node's id. */
export const MARKER_VARIABLE = "MODEL_AGENT_ENGINE";

export function readProcess(pid: number): ProcessInfo | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The command in parentheses may itself hold spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return {
      pid,
      state: fields[0] ?? "?",
      parentPid: Number(fields[1]),
      groupId: Number(fields[2]),
      startTicks: fields[19] ?? "",
    };
  } catch {
    return null;
  }
}

export function listProcesses(): ProcessInfo[] {
  let names: string[];
  try {
    names = readdirSync("/proc");
  } catch {
    return [];
  }
  return names.flatMap((name) => (/^\d+$/.test(name) ? (readProcess(Number(name)) ?? []) : []));
}

const isAlive = ({ state }: ProcessInfo) => state !== "Z" && state !== "X";

function hasMarker(pid: number, markerPrefix: string): boolean {
  try {
    const environment = readFileSync(`/proc/${pid}/environ`, "latin1");
    return environment.split("\0").some((entry) => entry.startsWith(`${MARKER_VARIABLE}=${markerPrefix}`));
  } catch {
    return false;
  }
}

/** Living processes that carry a marker with this prefix. */
export function markedProcesses(markerPrefix: string): number[] {
  return listProcesses()
    .filter((each) => isAlive(each) && each.pid !== process.pid && hasMarker(each.pid, markerPrefix))
    .map(({ pid }) => pid);
}

/** Living descendants of a process, those in other sessions and groups too. */
export function descendantsOf(rootPid: number): number[] {
  const children = new Map<number, ProcessInfo[]>();
  for (const each of listProcesses()) {
    const siblings = children.get(each.parentPid);
    if (siblings) siblings.push(each);
    else children.set(each.parentPid, [each]);
  }
  const found: number[] = [];
  const visit = (pid: number) => {
    for (const child of children.get(pid) ?? []) {
      if (isAlive(child)) found.push(child.pid);
      visit(child.pid);
    }
  };
  visit(rootPid);
  return found;
}

/** Signals a process, or a whole group with a negative id; one that is already gone is not an error. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // Gone already, or not ours: either way there is nothing left to do to it.
  }
}

const POLL_MS = 25;
const KILL_WAIT_MAX_MS = 10_000;

/**
 * Finds what `findPids` finds, and goes on finding it until it has ended: a dying process loses its environment,
 * and with it its marker, before it closes its files, and until then it holds the GPU.
 */
function untilEnded(findPids: () => number[]): () => number[] {
  const seen = new Map<number, string>();
  return () => {
    for (const pid of findPids()) {
      const found = readProcess(pid);
      if (found) seen.set(pid, found.startTicks);
    }
    for (const [pid, startTicks] of seen) {
      const found = readProcess(pid);
      if (!found || !isAlive(found) || found.startTicks !== startTicks) seen.delete(pid);
    }
    return [...seen.keys()];
  };
}

/** SIGKILL until none of them is left; what is stuck in the kernel beyond that is returned. */
export async function killAll(findPids: () => number[]): Promise<number[]> {
  const deadline = Date.now() + KILL_WAIT_MAX_MS;
  const findLeft = untilEnded(findPids);
  for (;;) {
    const pids = findLeft();
    if (pids.length === 0 || Date.now() > deadline) return pids;
    for (const pid of pids) signal(pid, "SIGKILL");
    await Bun.sleep(POLL_MS);
  }
}

/** Waits until none is left; false when some still are at the deadline, which may move meanwhile. */
export async function waitForNone(findPids: () => number[], deadlineMs: () => number): Promise<boolean> {
  const findLeft = untilEnded(findPids);
  while (findLeft().length > 0) {
    if (Date.now() > deadlineMs()) return false;
    await Bun.sleep(POLL_MS);
  }
  return true;
}
