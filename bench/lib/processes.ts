import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const TICKS_PER_SECOND = 100;
const PAGE_BYTES = 4096;
const MEGABYTE = 1024 * 1024;

interface Stat {
  pid: number;
  parent: number;
  ticks: number;
  rssPages: number;
}

function statOf(pid: number): Stat | null {
  try {
    // The name in parentheses may contain anything; the fields begin after it.
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)!.split(" ");
    return {
      pid,
      parent: Number(fields[1]),
      ticks: Number(fields[11]) + Number(fields[12]),
      rssPages: Number(fields[21]),
    };
  } catch {
    return null;
  }
}

/** A process and everything below it. */
function treeOf(root: number): Stat[] {
  const all = new Map<number, Stat>();
  for (const name of readdirSync("/proc")) {
    const stat = /^\d+$/.test(name) ? statOf(Number(name)) : null;
    if (stat) all.set(Number(name), stat);
  }
  const belongs = (pid: number): boolean =>
    pid === root || (all.has(pid) && pid > 1 && belongs(all.get(pid)!.parent));
  return [...all].filter(([pid]) => belongs(pid)).map(([, stat]) => stat);
}

/** Processor time that the tree has used, in microseconds. */
export const cpuUs = (pid: number): number =>
  treeOf(pid).reduce((sum, { ticks }) => sum + (ticks * 1_000_000) / TICKS_PER_SECOND, 0);

/** The same of the process alone. */
export const ownCpuUs = (pid: number): number => ((statOf(pid)?.ticks ?? 0) * 1_000_000) / TICKS_PER_SECOND;

export const treePids = (pid: number): number[] => treeOf(pid).map(({ pid: each }) => each);

/** Of the process alone; 0 when it has ended. */
export const ownRssMb = (pid: number): number => ((statOf(pid)?.rssPages ?? 0) * PAGE_BYTES) / MEGABYTE;

export const rssMb = (pid: number): number =>
  treeOf(pid).reduce((sum, { rssPages }) => sum + (rssPages * PAGE_BYTES) / MEGABYTE, 0);

/** Bytes that the tree has sent to disk: `write_bytes` of /proc/<pid>/io. */
export const diskBytes = (pid: number): number =>
  treeOf(pid).reduce(
    (sum, stat) =>
      sum + Number(/^write_bytes: (\d+)$/m.exec(readFileSync(`/proc/${stat.pid}/io`, "utf8"))![1]),
    0,
  );

const root = join(import.meta.dir, "..", "..");
const started: Bun.Subprocess[] = [];

/** Starts a program of this folder that prints its port once it listens, and returns both. */
export async function startServer(
  file: string,
  args: readonly string[] = [],
  env: Record<string, string> = {},
): Promise<{ pid: number; port: number }> {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, file), ...args], {
    env: { ...process.env, BUN_CONFIG_MAX_HTTP_REQUESTS: "65336", ...env },
    stdout: "pipe",
    stderr: "inherit",
  });
  started.push(child);
  const reader = child.stdout.getReader();
  const { value } = await reader.read();
  return { pid: child.pid, port: Number(new TextDecoder().decode(value)) };
}

export function startCommand(
  command: string[],
  env: Record<string, string> = {},
  cwd = root,
): Bun.Subprocess {
  const child = Bun.spawn(command, {
    cwd,
    env: { ...process.env, ...env },
    stdout: "ignore",
    stderr: "ignore",
  });
  started.push(child);
  return child;
}

const READY_WITHIN_MS = 20_000;

/** Polls often: how long a start takes is measured with it. */
export async function untilReady(
  what: string,
  check: () => Promise<boolean>,
  withinMs = READY_WITHIN_MS,
): Promise<void> {
  for (const deadlineMs = Date.now() + withinMs; !(await check().catch(() => false)); ) {
    if (Date.now() > deadlineMs) throw new Error(`${what} did not become ready`);
    await Bun.sleep(2);
  }
}

/** Ends one process that was started here, and waits for it. */
export async function stop(pid: number): Promise<void> {
  const child = started.find((each) => each.pid === pid);
  child?.kill();
  await child?.exited;
}

/** Ends everything that was started here, and waits for it. */
export async function stopAll(): Promise<void> {
  for (const child of started) child.kill();
  await Promise.all(started.map(({ exited }) => exited));
}
