import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const CLI = join(import.meta.dir, "../src/main.ts");

export interface Ran {
  code: number;
  out: string;
  err: string;
}

export interface Shell {
  dir: string;
  /** Runs the command line as a process of its own. */
  run(args: readonly string[], options?: { env?: Record<string, string>; stdin?: string }): Promise<Ran>;
  /** Starts it, and goes on when its error stream has what is looked for. */
  begin(
    args: readonly string[],
    options?: { env?: Record<string, string> },
  ): { said(what: RegExp): Promise<RegExpExecArray>; ended: Promise<Ran>; stop(): void };
  /** The same on a terminal; `typed` is entered when the text before it has appeared. */
  onTerminal(args: readonly string[], typed: readonly Typed[]): Promise<Ran>;
  end(): void;
}

export interface Typed {
  after: string;
  text: string;
}

/** Runs a program on a terminal; each text is entered when what stands before it has appeared since the last. */
export async function onPty({
  command,
  cwd,
  env,
  typed,
}: {
  command: string[];
  cwd: string;
  env: Record<string, string>;
  typed: readonly Typed[];
}): Promise<{ code: number; out: string }> {
  let out = "";
  let seen = 0;
  const waiting = [...typed];
  const decoder = new TextDecoder();
  const child = Bun.spawn(command, {
    cwd,
    env: { ...env, TERM: "xterm" },
    terminal: {
      cols: 100,
      rows: 30,
      data(terminal, bytes) {
        out += decoder.decode(bytes, { stream: true });
        const next = waiting[0];
        if (!next || !out.includes(next.after, seen)) return;
        seen = out.length;
        waiting.shift();
        terminal.write(next.text);
      },
    },
  });
  return { code: await child.exited, out };
}

/** A place of its own: settings and sessions of whoever runs the tests are not seen and not touched. */
export function openShell(env: Record<string, string> = {}): Shell {
  const dir = mkdtempSync(join(tmpdir(), "cli-"));
  // As where it is installed: hints name it as it is called there.
  const path = `${join(import.meta.dir, "../../../node_modules/.bin")}:${process.env.PATH ?? ""}`;
  const base = { PATH: path, HOME: dir, XDG_CONFIG_HOME: join(dir, "config"), ...env };
  const command = (args: readonly string[]) => [process.execPath, CLI, ...args];
  return {
    dir,
    async run(args, { env: more = {}, stdin } = {}) {
      const child = Bun.spawn(command(args), {
        cwd: dir,
        env: { ...base, ...more },
        stdin: stdin === undefined ? "ignore" : new Blob([stdin]),
        stdout: "pipe",
        stderr: "pipe",
      });
      const [out, err, code] = await Promise.all([
        new Response(child.stdout).text(),
        new Response(child.stderr).text(),
        child.exited,
      ]);
      return { code, out, err };
    },
    begin(args, { env: more = {} } = {}) {
      const child = Bun.spawn(command(args), {
        cwd: dir,
        env: { ...base, ...more },
        stdin: "ignore",
        stdout: "pipe",
        stderr: "pipe",
      });
      let err = "";
      let isOver = false;
      let heard = Promise.withResolvers<void>();
      const news = () => {
        heard.resolve();
        heard = Promise.withResolvers<void>();
      };
      const reading = (async () => {
        const decoder = new TextDecoder();
        for await (const bytes of child.stderr) {
          err += decoder.decode(bytes, { stream: true });
          news();
        }
        isOver = true;
        news();
      })();
      return {
        async said(what) {
          for (;;) {
            const found = what.exec(err);
            if (found) return found;
            if (isOver) throw new Error(`it ended without saying ${what}: ${err}`);
            await heard.promise;
          }
        },
        ended: (async () => {
          const [out, code] = await Promise.all([new Response(child.stdout).text(), child.exited, reading]);
          return { code, out, err };
        })(),
        stop: () => child.kill(),
      };
    },
    async onTerminal(args, typed) {
      const { code, out } = await onPty({ command: command(args), cwd: dir, env: base, typed });
      return { code, out, err: "" };
    },
    end: () => rmSync(dir, { recursive: true, force: true }),
  };
}
