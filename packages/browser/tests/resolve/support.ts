import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Progress } from "../../src/resolve/index.ts";
import type { Host } from "../../src/resolve/system.ts";

/** A version without a known checksum, so that archives made by the tests pass. */
export const TEST_VERSION = "155.0.9000.1";
export const TEST_PLATFORM = "linux64";

export interface TempDir {
  path: string;
  remove(): void;
}

export function tempDir(): TempDir {
  const path = mkdtempSync(join(tmpdir(), "browser-resolve-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** A Linux x64 machine with only the given files. */
export function fakeHost(files: string[] = [], host: Partial<Host> = {}): Host {
  const present = new Set(files);
  return {
    platform: "linux",
    arch: "x64",
    homeDir: "/home/user",
    libc: "glibc",
    whyUnusable: (path) => (present.has(path) ? null : "does not exist"),
    ...host,
  };
}

export interface WorkerResult {
  ok: boolean;
  path?: string;
  source?: string;
  code?: string;
  message?: string;
}

export interface Worker {
  pid: number;
  kill(): void;
  /** Resolves when the worker has reported this phase. */
  reached(phase: Progress["phase"]): Promise<void>;
  /** The result line, or null for a worker that was killed. */
  result: Promise<WorkerResult | null>;
  exited: Promise<number>;
}

/** Resolves an engine in a process of its own, on a machine without any installed browser. */
export function startWorker(env: Record<string, string>): Worker {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "fetch-worker.ts")], {
    env: { PATH: process.env.PATH ?? "", ...env },
    stdout: "pipe",
    stderr: "inherit",
  });
  const phases = new Set<string>();
  const waiters = new Map<string, () => void>();
  const read = async (): Promise<WorkerResult | null> => {
    let result: WorkerResult | null = null;
    let rest = "";
    const decoder = new TextDecoder();
    for await (const chunk of child.stdout) {
      rest += decoder.decode(chunk, { stream: true });
      const lines = rest.split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line.startsWith("phase ")) {
          phases.add(line.slice(6));
          waiters.get(line.slice(6))?.();
        } else result = JSON.parse(line) as WorkerResult;
      }
    }
    return result;
  };
  return {
    pid: child.pid,
    kill: () => child.kill("SIGKILL"),
    reached: (phase) =>
      phases.has(phase) ? Promise.resolve() : new Promise((resolve) => waiters.set(phase, resolve)),
    result: read(),
    exited: child.exited,
  };
}
