import { afterEach } from "bun:test";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { silentLog } from "../../src/kernel/log.ts";
import type { ChargedEntry, JournalEntry } from "../../src/rooms/metering/journal/codec.ts";
import { type Batch, Journal, type JournalOptions } from "../../src/rooms/metering/journal/journal.ts";
import { readLines } from "../../src/rooms/metering/journal/segment.ts";
import { journalEntry } from "../support/request-lines.ts";

const dirs: string[] = [];
export function temporaryDir(parent = tmpdir()): string {
  const dir = mkdtempSync(join(parent, "journal-test-"));
  dirs.push(dir);
  return dir;
}
/** To be called once in a file of tests. */
export function removeDirsAfterEach(): void {
  afterEach(() => {
    for (const dir of dirs.splice(0)) rmSync(dir, { recursive: true, force: true });
  });
}

export const entry = (fields: Partial<ChargedEntry> = {}): JournalEntry =>
  journalEntry({ project: "projekt ünïcode 项目", ...fields });

export const open = (dir: string, options: Partial<JournalOptions> = {}) =>
  Journal.open({ dir, instance: crypto.randomUUID(), clock: new ManualClock(), log: silentLog, ...options });

/** The first rows of a batch, as the settler reads them. */
export const read = ({ segment, start, end }: Batch, rowsMax: number) =>
  readLines({ file: segment.path, start, end, rowsMax });

/** Takes everything out, as the writer does. */
export function drain(journal: Journal, rowsMax = 3): JournalEntry[] {
  const taken: JournalEntry[] = [];
  for (let batch = journal.next(); batch; batch = journal.next()) {
    const { entries, damaged, length } = read(batch, rowsMax);
    taken.push(...entries);
    journal.advance(batch, { rows: entries.length + damaged.length, damaged, length });
  }
  return taken;
}
export const files = (dir: string) => readdirSync(dir).filter((name) => name.endsWith(".jsonl"));
