import { Database } from "bun:sqlite";
import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { isErrno, SetupError } from "./errors.ts";
import { cacheUnusable } from "./place.ts";

const POLL_MS = 100;

interface LockOptions {
  /** How long another process may hold the lock before this one gives up. */
  timeoutMs: number;
  onWait?: () => void;
}

/**
 * A lock between processes, held as an exclusive SQLite transaction on a file of its own. The operating system
 * drops it together with the process that holds it, however that process ends, so no lock is ever stale and
 * there is nothing to guess from process ids or file times.
 */
export async function withLock<T>(path: string, options: LockOptions, work: () => Promise<T>): Promise<T> {
  let database: Database;
  try {
    mkdirSync(dirname(path), { recursive: true });
    database = new Database(path, { create: true });
    database.run("PRAGMA busy_timeout = 0");
  } catch (error) {
    throw cacheUnusable(path, error);
  }
  try {
    await acquire(database, path, options);
    return await work();
  } finally {
    // Closing ends the transaction, which releases the lock.
    database.close();
  }
}

async function acquire(database: Database, path: string, { timeoutMs, onWait }: LockOptions): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  for (let attempt = 0; ; attempt++) {
    try {
      database.run("BEGIN EXCLUSIVE");
      return;
    } catch (error) {
      if (!isErrno(error, "SQLITE_BUSY")) throw cacheUnusable(path, error);
    }
    if (attempt === 0) onWait?.();
    if (performance.now() > deadline)
      throw new SetupError(
        "download_timeout",
        "Another process has been installing the same browser for too long.",
        {
          wayOut: "Wait for it or end it, or raise BROWSER_DOWNLOAD_TIMEOUT_SECS.",
        },
      );
    await Bun.sleep(POLL_MS);
  }
}
