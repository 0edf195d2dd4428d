/** Starts a Chromium and hands back its pipe. */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync } from "node:fs";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { PipeTransport } from "../cdp/pipe.ts";
import { ToolError } from "../errors.ts";
import { isSharedMemorySmall } from "../resolve/host-facts.ts";
import { type ChosenFlags, chromiumFlags } from "./flags.ts";
import { Guard } from "./guard.ts";
import { askForNoLogins, openProfile, type Profile } from "./profile.ts";

/** How much of the browser's output is kept for the error message when it exits. */
const stderrCharsMax = 2_000;
const lastLinesMax = 4;
const lineCharsMax = 300;
const lastWordsMsMax = 200;

/** Messages that a healthy browser also prints when there is no desktop. */
const idleTalk = /dbus|gcm|GPU stall|vaapi|DevTools listening|voice_transcription|registration_request/i;

function lastWords(complaints: string): string {
  const lines = complaints.split("\n").filter((line) => line.trim() !== "" && !idleTalk.test(line));
  return lines
    .slice(-lastLinesMax)
    .map((line) => line.trim().slice(0, lineCharsMax))
    .join(" | ");
}

export interface LaunchOptions extends ChosenFlags {
  path: string;
  /** The proxy's challenges are answered by the tool, and the servers' then too. */
  hasProxyLogin?: boolean;
  /** A profile that stays; absent: a throw-away one. */
  profileDir?: string | null;
  /** Where the loader finds libraries that came with the tool. */
  libraryEnv?: Record<string, string>;
}

export interface LaunchedBrowser {
  transport: PipeTransport;
  profileDir: string;
  pid: number;
}

/** Why Chromium's sandbox is off; null when it is on. Root may not use it, nor a container without user namespaces. */
export function whyNoSandbox(): string | null {
  if (process.env.BROWSER_NO_SANDBOX === "1") return "BROWSER_NO_SANDBOX is set";
  const isRoot = process.platform === "linux" && process.getuid?.() === 0;
  return isRoot ? "the tool runs as root" : null;
}

/** A socket's path has at most 107 characters, of which Chromium uses about 50 for names of its own. */
const temporaryPathCharsMax = 50;

/**
 * The browser leaves sockets and files in the temporary folder when it is killed; inside the profile they go with it.
 * Where that path would be too long for a socket, a folder beside it in a short place is used and deleted too.
 */
function temporaryDir({ dir, isThrowAway }: Profile): string | null {
  if (process.platform !== "linux") return null;
  const inside = join(dir, "tmp");
  if (isThrowAway && inside.length <= temporaryPathCharsMax) {
    mkdirSync(inside);
    return inside;
  }
  for (const place of ["/tmp", "/var/tmp", "/dev/shm"]) {
    try {
      return mkdtempSync(join(place, "bt-"));
    } catch {
      // Not there, or not ours to write to; the next one may be.
    }
  }
  return null;
}

export function launchBrowser(options: LaunchOptions): LaunchedBrowser {
  if (!existsSync(options.path))
    throw new ToolError(
      "browser_unavailable",
      `No browser at ${options.path}. Run "browser-tool doctor" to see which binary would be used and why.`,
    );
  const profile = openProfile(options.profileDir ?? null);
  const profileDir = profile.dir;
  const ownTemporaryDir = temporaryDir(profile);
  const guard = new Guard(profileDir, [
    ...(profile.isThrowAway ? [profileDir] : []),
    ...(ownTemporaryDir === null ? [] : [ownTemporaryDir]),
  ]);
  if (!options.hasProxyLogin) askForNoLogins(profileDir);
  const flags = chromiumFlags({
    ...options,
    profileDir,
    sandbox: whyNoSandbox() === null,
    smallSharedMemory: isSharedMemorySmall(),
  });
  const child = spawn(options.path, flags, {
    // Descriptors 3 and 4 are where Chromium reads and writes with --remote-debugging-pipe.
    stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"],
    detached: true,
    env: {
      ...process.env,
      ...options.libraryEnv,
      ...(ownTemporaryDir === null ? {} : { TMPDIR: ownTemporaryDir }),
    },
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
    profile.release();
    const words = lastWords(complaints);
    transport.end(words ? `${how}; it said: ${words}` : how);
  };
  child.once("error", (error) => ended(`it could not be started: ${error.message}`));
  child.once("exit", (code, signal) => {
    const how = `it exited with ${signal ?? `code ${code}`}`;
    // What it wrote at the end may still be on its way.
    const timer = setTimeout(() => ended(how), lastWordsMsMax);
    child.stderr?.once("close", () => {
      clearTimeout(timer);
      ended(how);
    });
  });
  return { transport, profileDir, pid: child.pid ?? 0 };
}
