/** Commands that make a running engine ready, such as one that has it pull a model. */
import { linesOf } from "../guard/messages.ts";
import { signal as sendSignal } from "../guard/processes.ts";

export async function runAfterStart(run: {
  command: string[];
  env: Record<string, string>;
  timeoutMs: number;
  signal: AbortSignal;
  onRunning: (lastLine: string) => void;
}): Promise<void> {
  const { command, signal } = run;
  const name = command[0]!;
  if (!Bun.which(name, { PATH: run.env.PATH ?? "" }))
    throw new Error(`${name} is not installed (not found in PATH)`);
  const child = Bun.spawn(command, {
    env: run.env,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
    detached: true,
  });
  let lastLine = "";
  const follow = async (stream: ReadableStream<Uint8Array>) => {
    // Progress bars write one line over and over.
    for await (const line of linesOf(stream, /[\r\n]/)) {
      if (line.trim() === "") continue;
      lastLine = line.trim().slice(-200);
      run.onRunning(lastLine);
    }
  };
  const end = () => sendSignal(-child.pid, "SIGKILL");
  signal.addEventListener("abort", end, { once: true });
  const timer = setTimeout(end, Math.max(0, run.timeoutMs));
  try {
    await Promise.all([follow(child.stdout), follow(child.stderr), child.exited]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", end);
  }
  signal.throwIfAborted();
  if (child.exitCode !== 0)
    throw new Error(
      `${command.join(" ")} failed (${child.signalCode ?? `code ${child.exitCode}`}): ${lastLine}`,
    );
}
