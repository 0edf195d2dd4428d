/**
 * What makes sure that no browser outlives the tool. A small shell waits on a pipe whose other end only this
 * process holds: however the process ends, SIGKILL included, the pipe closes, and the shell kills the
 * browser's process group and deletes its profile. It runs in a session of its own, so a signal to the
 * tool's group does not reach it.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, rmSync } from "node:fs";

/**
 * The group id arrives as the first line. If the tool dies before it sent that, the browser is found by
 * its profile directory, which is unique to this launch. Deleting is repeated until it succeeds: dying processes still write.
 */
const guardScript = `trap '' HUP INT TERM
read -r group
while read -r rest; do :; done
if [ -n "$group" ]; then kill -s KILL -- "-$group"; else pkill -KILL -f -- "--user-data-dir=$1"; fi 2>/dev/null
shift
gone=0 tries=0
while [ $gone -lt 2 ] && [ $tries -lt 60 ]; do
  rm -rf -- "$@" 2>/dev/null
  sleep 0.03
  gone=$((gone+1))
  for dir do [ ! -e "$dir" ] || gone=0; done
  tries=$((tries+1))
done`;

export class Guard {
  readonly #child: ChildProcess;
  readonly #gone: Promise<void>;
  readonly #dirs: string[];
  #group: number | null = null;

  /** `dirs` are deleted at the end. */
  constructor(profileDir: string, dirs: string[]) {
    this.#dirs = dirs;
    this.#child = spawn("/bin/sh", ["-c", guardScript, "browser-tool-guard", profileDir, ...dirs], {
      stdio: ["pipe", "ignore", "ignore"],
      detached: true,
      cwd: "/",
      env: { PATH: process.env.PATH ?? "/usr/bin:/bin" },
    });
    this.#gone = new Promise((resolve) => {
      this.#child.once("exit", () => resolve());
      this.#child.once("error", () => resolve());
    });
    this.#child.stdin?.on("error", () => {});
    this.#child.unref();
  }

  watch(processGroup: number): void {
    this.#group = processGroup;
    this.#child.stdin?.write(`${processGroup}\n`);
  }

  /** Kills the browser now and resolves when what it leaves is gone; does that itself where the shell has died. */
  async release(): Promise<void> {
    this.#child.ref();
    this.#child.stdin?.end();
    await this.#gone;
    if (this.#child.exitCode === 0 && this.#dirs.every((dir) => !existsSync(dir))) return;
    try {
      if (this.#group !== null) process.kill(-this.#group, "SIGKILL");
    } catch {
      // It has ended already.
    }
    for (const dir of this.#dirs)
      rmSync(dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
    this.#group = null;
  }
}
