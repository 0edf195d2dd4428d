import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { privateFolder } from "../../kernel/private-files.ts";
import type { AuditRow } from "./store.ts";

const FOLDER = "audit";
const WAITING_MAX = 10_000;
const ENTRY = /^[0-9a-f-]{36}$/;

/**
 * Entries on their way into the database, a file each, in the data directory: workers that share it store each other's,
 * which does no harm, since an id is stored once.
 */
export class AuditJournal {
  readonly #folder: string;

  constructor(dataDir: string) {
    this.#folder = join(dataDir, FOLDER);
    privateFolder(this.#folder);
  }

  /** Throws when the disk is full, or too many wait. */
  add(row: AuditRow): void {
    if (this.#names().length >= WAITING_MAX) throw new Error(`${WAITING_MAX} entries wait already`);
    const path = join(this.#folder, row.id);
    writeFileSync(`${path}.new`, JSON.stringify(row), { mode: 0o600, flush: true });
    renameSync(`${path}.new`, path);
  }

  /** The oldest; null when none waits. */
  first(): AuditRow | null {
    for (const name of this.#names()) {
      try {
        return JSON.parse(readFileSync(join(this.#folder, name), "utf8"));
      } catch {
        // Another worker has stored it just now.
      }
    }
    return null;
  }

  remove({ id }: AuditRow): void {
    rmSync(join(this.#folder, id), { force: true });
  }

  /** Ids are in the order of time. */
  #names(): string[] {
    // A data directory that was deleted under a running service leaves nothing to store.
    if (!existsSync(this.#folder)) return [];
    return readdirSync(this.#folder)
      .filter((name) => ENTRY.test(name))
      .sort();
  }
}
