import { Database as Sqlite } from "bun:sqlite";
import { rmSync } from "node:fs";
import { privateFile } from "./private-files.ts";

/** A lock that ends with the process: SQLite's file lock, since Bun has no flock. Works between containers, too. */
export class InstanceLock {
  private constructor(
    readonly path: string,
    readonly handle: Sqlite,
  ) {}

  /** Null when another process, or another part of this one, holds it. */
  static tryAcquire(path: string): InstanceLock | null {
    privateFile(path);
    const handle = new Sqlite(path, { create: true });
    try {
      handle.run("PRAGMA busy_timeout = 0");
      handle.run("BEGIN EXCLUSIVE");
      return new InstanceLock(path, handle);
    } catch (error) {
      handle.close();
      if ((error as { code?: string }).code === "SQLITE_BUSY") return null;
      throw error;
    }
  }

  /** Removes the file first: a process that opens the path later then gets its own lock. */
  release(): void {
    rmSync(this.path, { force: true });
    this.handle.close();
  }
}
