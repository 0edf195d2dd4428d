/**
 * Runs between the node program and one engine, as the engine's parent. However the node
 * program ends, this process's stdin closes, and the engine and everything that it started is killed:
 * no orphan keeps a GPU. It is a separate process because a killed program cannot clean up after itself.
 */
import { dlopen, FFIType } from "bun:ffi";
import { EngineLog } from "./engine-log.ts";
import { type GuardEvent, type GuardOrder, type GuardStop, linesOf } from "./messages.ts";
import {
  descendantsOf,
  killAll,
  MARKER_VARIABLE,
  markedProcesses,
  signal,
  waitForNone,
} from "./processes.ts";

/** Grace period when the node program is gone: nobody waits, but the GPU should still be released cleanly. */
const ORPHAN_GRACE_MS = 2_000;
const PR_SET_CHILD_SUBREAPER = 36;
/** Grace period for processes that the engine left running when it exited. */
const LEFTOVER_GRACE_MS = 500;
/** Pipes that a stray grandchild holds open must not delay the news of the engine's end. */
const LOG_FLUSH_MAX_MS = 500;

/** Makes orphans of the engine's tree our children, so that none escapes. Linux only. */
function becomeSubreaper(): void {
  try {
    const { i32, u64 } = FFIType;
    const libc = dlopen("libc.so.6", { prctl: { args: [i32, u64, u64, u64, u64], returns: i32 } });
    libc.symbols.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  } catch {
    // The marker in the environment still finds most of what a process group does not cover.
  }
}

function tell(event: GuardEvent): void {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

/** With setpriv the kernel kills the engine if this guard is killed too. */
function guarded(command: string[]): string[] {
  const setpriv = process.platform === "linux" ? Bun.which("setpriv") : null;
  return setpriv ? [setpriv, "--pdeathsig", "KILL", "--", ...command] : command;
}

async function guard(order: GuardOrder, commands: AsyncGenerator<string>): Promise<void> {
  const env: Record<string, string> = { ...order.env, [MARKER_VARIABLE]: order.marker };
  const program = Bun.which(order.command[0]!, { PATH: env.PATH ?? "", cwd: order.cwd });
  if (!program) {
    const name = order.command[0]!;
    const why = name.includes("/") ? "is no program that can be run" : "is not installed (not found in PATH)";
    tell({ event: "failed", message: `${name} ${why}` });
    return;
  }
  const log = new EngineLog(order.logFile);
  const engine = Bun.spawn(guarded([program, ...order.command.slice(1)]), {
    cwd: order.cwd,
    env,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
    detached: true,
  });
  tell({ event: "started", pid: engine.pid });
  const logged = Promise.all([log.copyFrom(engine.stdout), log.copyFrom(engine.stderr)]).catch(
    () => undefined,
  );
  const remaining = () => [...new Set([...descendantsOf(process.pid), ...markedProcesses(order.marker)])];

  // A later order can only shorten the grace: the node program may die during a graceful stop.
  let killAtMs = Number.POSITIVE_INFINITY;
  let stopped: Promise<unknown> | null = null;
  const stop = (graceMs: number) => {
    killAtMs = Math.min(killAtMs, Date.now() + graceMs);
    stopped ??= (async () => {
      signal(-engine.pid, "SIGTERM");
      if (await waitForNone(remaining, () => killAtMs)) return;
      signal(-engine.pid, "SIGKILL");
      await killAll(remaining);
    })();
  };
  for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(name, () => stop(ORPHAN_GRACE_MS));
  void obey(commands, stop);

  await engine.exited;
  // What the engine leaves behind would hold the GPU against its successor.
  for (const pid of remaining()) signal(pid, "SIGTERM");
  stop(LEFTOVER_GRACE_MS);
  await stopped;
  await Promise.race([logged, Bun.sleep(LOG_FLUSH_MAX_MS)]);
  const exitSignal = engine.signalCode === null ? null : String(engine.signalCode);
  tell({ event: "exited", code: engine.exitCode, signal: exitSignal, tail: log.tail });
}

/** Follows orders until stdin closes, which means that the node program has exited. */
async function obey(commands: AsyncGenerator<string>, stop: (graceMs: number) => void): Promise<void> {
  for await (const line of commands) {
    const { stopGraceMs } = JSON.parse(line) as GuardStop;
    stop(stopGraceMs);
  }
  stop(ORPHAN_GRACE_MS);
}

async function main(): Promise<void> {
  process.stdout.on("error", () => undefined);
  becomeSubreaper();
  const lines = linesOf(Bun.stdin.stream());
  const first = await lines.next();
  if (!first.done) await guard(JSON.parse(first.value) as GuardOrder, lines);
  process.exit(0);
}

void main();
