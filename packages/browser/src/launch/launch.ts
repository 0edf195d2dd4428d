/** Starts a Chromium on a throw-away profile and hands back its pipe. */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { PipeTransport } from "../cdp/pipe.ts";
import { ToolError } from "../errors.ts";
import { isSharedMemorySmall } from "../resolve/host-facts.ts";
import { chromiumFlags } from "./flags.ts";
import { Guard } from "./guard.ts";

/** How much of the browser's own complaints is kept for the error message of a failed start. */
const stderrCharsMax = 2_000;

export interface LaunchOptions {
  path: string;
  headful: boolean;
  proxy?: string;
  viewport: { width: number; height: number };
  ignoreHttpsErrors?: boolean;
  /** The proxy's challenges are answered by the tool, and the servers' then too. */
  hasProxyLogin?: boolean;
  extraFlags?: readonly string[];
  /** Where the loader finds libraries that came with the tool. */
  libraryEnv?: Record<string, string>;
}

export interface LaunchedBrowser {
  transport: PipeTransport;
  profileDir: string;
  pid: number;
}

/** Root may not use Chromium's sandbox, and neither may a container without user namespaces. */
function sandboxUsable(): boolean {
  if (process.env.BROWSER_NO_SANDBOX === "1") return false;
  return process.platform !== "linux" || process.getuid?.() !== 0;
}

/** The browser leaves sockets and files in the temporary folder when it is killed; inside the profile they go with it. */
function temporaryDirInside(profileDir: string): Record<string, string> {
  // Elsewhere the path would grow past what a socket's name may have.
  if (process.platform !== "linux") return {};
  const dir = join(profileDir, "tmp");
  mkdirSync(dir);
  return { TMPDIR: dir };
}

/** A browser that knows no way to log in shows the page that a server sends along with its challenge. */
function askForNoLogins(profileDir: string): void {
  writeFileSync(join(profileDir, "Local State"), JSON.stringify({ auth: { schemes: "" } }));
}

export function launchBrowser(options: LaunchOptions): LaunchedBrowser {
  if (!existsSync(options.path))
    throw new ToolError(
      "browser_unavailable",
      `No browser at ${options.path}. Run "browser-tool doctor" to see which binary would be used and why.`,
    );
  const profileDir = mkdtempSync(join(tmpdir(), "browser-tool-"));
  const guard = new Guard(profileDir);
  if (!options.hasProxyLogin) askForNoLogins(profileDir);
  const flags = chromiumFlags({
    profileDir,
    headful: options.headful,
    proxy: options.proxy,
    viewport: options.viewport,
    sandbox: sandboxUsable(),
    ignoreHttpsErrors: options.ignoreHttpsErrors ?? false,
    smallSharedMemory: isSharedMemorySmall(),
    extra: options.extraFlags ?? [],
  });
  const child = spawn(options.path, flags, {
    // Descriptors 3 and 4 are where Chromium reads and writes with --remote-debugging-pipe.
    stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"],
    detached: true,
    env: { ...process.env, ...options.libraryEnv, ...temporaryDirInside(profileDir) },
  });
  if (child.pid !== undefined) guard.watch(child.pid);

  let complaints = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    complaints = (complaints + chunk.toString()).slice(-stderrCharsMax);
  });
  const transport = new PipeTransport({
    toBrowser: child.stdio[3] as Writable,
    fromBrowser: child.stdio[4] as Readable,
    endProcess: () => guard.release(),
  });
  const ended = (how: string) => {
    void guard.release();
    // A browser that ran complained about many things; only one that never came up says why.
    const isExplained = complaints !== "" && !transport.hasSpoken;
    transport.processExited(isExplained ? `${how}; it said: ${complaints.trim()}` : how);
  };
  child.once("error", (error) => ended(`it could not be started: ${error.message}`));
  child.once("exit", (code, signal) => ended(`it exited with ${signal ?? `code ${code}`}`));
  return { transport, profileDir, pid: child.pid ?? 0 };
}
