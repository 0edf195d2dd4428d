/** One engine, started through a guard process that ends it when this program ends. */
import { join } from "node:path";
import { type GuardEvent, type GuardOrder, type GuardStop, linesOf } from "../guard/messages.ts";
import { killAll, markedProcesses } from "../guard/processes.ts";

export interface EngineExit {
  code: number | null;
  signal: string | null;
  /** The last of what the engine wrote. */
  tail: string;
  /** Set when the engine was never started. */
  failure?: string;
}

/** Where a packed program has its guard, from the program; set by the build. */
declare const ENGINE_GUARD: string | undefined;
const GUARD_PROGRAM =
  typeof ENGINE_GUARD === "string"
    ? join(import.meta.dir, ENGINE_GUARD)
    : join(import.meta.dir, "..", "guard", "main.ts");
/** Names that hold what an engine has no business knowing. */
const PRIVATE_VARIABLES = ["AGENT_TOKEN", "AGENT_GATEWAY"];

/** The environment of this program without its secrets. */
export function inheritedEnv(): Record<string, string> {
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(process.env))
    if (value !== undefined && !PRIVATE_VARIABLES.includes(name)) env[name] = value;
  return env;
}

export class EngineProcess {
  /** Settles once all processes of the engine are gone. Never rejects. */
  readonly exited: Promise<EngineExit>;
  readonly #guard: Bun.Subprocess<"pipe", "pipe", "inherit">;

  constructor(order: GuardOrder) {
    this.#guard = Bun.spawn([process.execPath, GUARD_PROGRAM], {
      cwd: order.cwd,
      env: inheritedEnv(),
      stdin: "pipe",
      stdout: "pipe",
      stderr: "inherit",
      // A session of its own, so that Ctrl-C in the operator's terminal reaches this program alone.
      detached: true,
    });
    this.#send(order);
    this.exited = this.#follow(order.marker);
  }

  /** Stops the engine: SIGTERM to its process group, then SIGKILL to what is left after the grace period. */
  stop(stopGraceMs: number): Promise<EngineExit> {
    this.#send({ stopGraceMs });
    return this.exited;
  }

  #send(message: GuardOrder | GuardStop): void {
    try {
      this.#guard.stdin.write(`${JSON.stringify(message)}\n`);
      this.#guard.stdin.flush();
    } catch {
      // The guard is gone; `exited` tells.
    }
  }

  async #follow(marker: string): Promise<EngineExit> {
    let exit: EngineExit | null = null;
    for await (const line of linesOf(this.#guard.stdout)) {
      const event = JSON.parse(line) as GuardEvent;
      if (event.event === "failed") exit = { code: null, signal: null, tail: "", failure: event.message };
      else if (event.event === "exited") exit = { code: event.code, signal: event.signal, tail: event.tail };
    }
    await this.#guard.exited;
    // A guard that was killed could not clean up, so it is done here.
    if (!exit) await killAll(() => markedProcesses(marker));
    return exit ?? { code: null, signal: "SIGKILL", tail: "the engine's guard process was killed" };
  }
}

export const lastLineOf = (tail: string): string => tail.split("\n").at(-1)?.trim().slice(-300) ?? "";

/** "code 1" or "SIGSEGV", and the last line that the engine wrote. */
export function describeExit({ code, signal, tail }: EngineExit): string {
  const how = signal ?? `code ${code}`;
  const lastLine = lastLineOf(tail);
  // Exit code 0 usually means that the engine daemonised; we cannot supervise that.
  const advice = code === 0 ? "; it has to stay in the foreground" : "";
  return `${how}${lastLine ? `: ${lastLine}` : ""}${advice}`;
}
