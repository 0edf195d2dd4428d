import { Database as Sqlite } from "bun:sqlite";
import { rmSync } from "node:fs";
import { privateFile } from "./private-files.ts";

/** A lock that ends with the process: SQLite's file lock, because Bun has no flock. It works between containers, too. */
export class InstanceLock {
  private constructor(
    readonly path: string,
    readonly handle: Sqlite,
  ) {}

  /** Null while another holder has it, also one in this process. */
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

  /** Removes the file first, so that a process that opens the path later gets a new lock. */
  release(): void {
    rmSync(this.path, { force: true });
    this.handle.close();
  }
}
