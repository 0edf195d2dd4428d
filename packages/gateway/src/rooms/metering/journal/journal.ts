import { appendFileSync, readdirSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import type { Clock } from "../../../kernel/clock.ts";
import { InstanceLock } from "../../../kernel/instance-lock.ts";
import type { Log } from "../../../kernel/log.ts";
import { closeFolder } from "../../../kernel/private-files.ts";
import type { SettleReport } from "../settler.ts";
import { encodeEntry, type JournalEntry } from "./codec.ts";
import { readLines, Segment } from "./segment.ts";

/** A power cut loses at most the lines of this time. */
const SYNC_DELAY_MS = 50;
/** Lines in one write at most. */
const GATHERED_MAX = 256;
/** Rows kept in memory while the disk refuses them. */
const REFUSED_ROWS_MAX = 10_000;
/** With this many, new spending is refused: the rest is for requests in progress. */
const REFUSED_ROWS_FULL = REFUSED_ROWS_MAX / 2;
/** With this much waiting for the database, new spending is refused, before the disk fills up. */
const BACKLOG_BYTES_MAX = 4 * 1024 ** 3;
/** The rows of an adopted segment are estimated from its size. */
const ROW_BYTES_TYPICAL = 370;

const SEGMENT_NAME = /^usage-([0-9a-f-]{36})-(\d{6,})\.jsonl$/;
const LOCK_NAME = /^([0-9a-f-]{36})\.lock$/;
const STALE_LOCK_MS = 60_000;
const instanceOf = (name: string): string | null => SEGMENT_NAME.exec(name)?.[1] ?? null;
const segmentName = (instance: string, sequence: number) =>
  `usage-${instance}-${String(sequence).padStart(6, "0")}.jsonl`;
export const DAMAGED_FILE = "damaged.jsonl";

export interface JournalOptions {
  dir: string;
  /** Identifies this run of the process, which owns its files until it ends. */
  instance: string;
  clock: Clock;
  log: Log;
  /** Calls `run` before the next answer is sent; by default at once. */
  beforeAnswers?(run: () => void): void;
}

/** The part of a segment that waits; one transaction may settle less of it. */
export interface Batch {
  segment: Segment;
  start: number;
  end: number;
}

/** Append-only files of finished requests, written before their answers end. A drained file is deleted. */
export class Journal {
  readonly #locks = new Map<string, InstanceLock>();
  #segments: Segment[] = [];
  #active: Segment;
  #sequence = 0;
  /** Lines of this turn of the event loop, which share one write. */
  #gathered: string[] = [];
  #refused: string[] = [];
  /** Bytes written and not drained, over all segments. */
  #backlogBytes = 0;
  #syncing = false;
  #dirty = false;
  #closed = false;
  #cancelSync: (() => void) | null = null;
  /** Rows of this run: written, taken out again, and lost. */
  appended = 0;
  drained = 0;
  lost = 0;

  private constructor(readonly options: JournalOptions) {
    this.#active = this.#newSegment();
  }

  static open(options: JournalOptions): Journal {
    closeFolder(options.dir);
    const lock = InstanceLock.tryAcquire(join(options.dir, `${options.instance}.lock`));
    if (!lock) throw new Error(`the usage journal of instance ${options.instance} is in use`);
    const journal = new Journal(options);
    journal.#locks.set(options.instance, lock);
    journal.adopt();
    return journal;
  }

  /** Takes over the files of processes that have ended. */
  adopt(): void {
    const { dir, log } = this.options;
    for (const instance of this.#instancesSeen()) {
      if (this.#locks.has(instance)) continue;
      const lock = InstanceLock.tryAcquire(join(dir, `${instance}.lock`));
      if (!lock) continue;
      this.#locks.set(instance, lock);
      // List after locking: until then the owner may have removed files.
      const names = readdirSync(dir).filter((name) => instanceOf(name) === instance);
      const segments = names.sort().map((name) => new Segment(join(dir, name), false));
      if (segments.length === 0) {
        this.#unlock(instance);
        continue;
      }
      this.#segments.unshift(...segments);
      const bytes = segments.reduce((sum, { size }) => sum + size, 0);
      this.#backlogBytes += bytes;
      log.info("usage journal of an earlier run found", { instance, files: names.length, bytes });
    }
  }

  /** Owners of segments, and of locks that are too old to belong to a process that is just starting. */
  #instancesSeen(): Set<string> {
    const { dir } = this.options;
    const seen = new Set<string>();
    for (const name of readdirSync(dir)) {
      const instance = instanceOf(name) ?? LOCK_NAME.exec(name)?.[1];
      if (!instance || seen.has(instance)) continue;
      const ageMs =
        Date.now() - (statSync(join(dir, name), { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
      if (instanceOf(name) !== null || ageMs > STALE_LOCK_MS) seen.add(instance);
    }
    return seen;
  }

  #unlock(instance: string): void {
    this.#locks.get(instance)?.release();
    this.#locks.delete(instance);
  }

  #newSegment(): Segment {
    const { dir, instance } = this.options;
    const segment = new Segment(join(dir, segmentName(instance, ++this.#sequence)), true);
    this.#segments.push(segment);
    return segment;
  }

  /** The row is in the file before its answer is sent, or in memory if the disk refuses it. */
  append(entry: JournalEntry): void {
    this.appended++;
    const { beforeAnswers } = this.options;
    const count = this.#gathered.push(encodeEntry(entry));
    if (!beforeAnswers) this.writeGathered();
    else if (count === 1) beforeAnswers(this.writeGathered);
    else if (count >= GATHERED_MAX) this.writeGathered();
  }

  /** When this returns, every row so far is in the file, or in memory if the disk refuses it. */
  readonly writeGathered = (): void => {
    const lines = this.#gathered;
    if (lines.length === 0) return;
    this.#gathered = [];
    if (this.#refused.length > 0) this.retryRefused();
    try {
      this.#put(lines.length === 1 ? lines[0]! : lines.join(""));
    } catch (error) {
      this.#refuse(lines, error);
    }
  };

  #put(text: string): void {
    let before = this.#active.size;
    if (!this.#active.append(text)) {
      this.#rotate();
      before = 0;
      if (!this.#active.append(text)) throw new Error("an empty file of the journal took no line");
    }
    this.#backlogBytes += this.#active.size - before;
    this.#syncSoon();
  }

  #refuse(lines: readonly string[], error: unknown): void {
    const { log } = this.options;
    if (this.#refused.length === 0)
      log.error("usage journal write failed; keeping rows in memory", { error });
    for (const line of lines) {
      if (this.#refused.length < REFUSED_ROWS_MAX) this.#refused.push(line);
      else {
        this.lost++;
        // The log line is the last copy of the row.
        log.error("usage row lost: journal write failed and the buffer is full", { line, error });
      }
    }
  }

  /** Writes what the disk refused before, as far as it takes it now. */
  retryRefused(): void {
    const lines = this.#refused;
    for (let i = 0; i < lines.length; i++) {
      try {
        this.#put(lines[i]!);
      } catch {
        this.#refused = lines.slice(i);
        return;
      }
    }
    if (lines.length > 0) this.options.log.info("usage journal is writable again", { rows: lines.length });
    this.#refused = [];
  }

  #rotate(): void {
    const full = this.#active;
    this.#active = this.#newSegment();
    full.sync((error) => {
      this.#reportSync(error);
      // A long backlog has more files than a process may keep open.
      full.close();
    });
  }

  /** One fdatasync for all lines of the delay. */
  #syncSoon(): void {
    this.#dirty = true;
    if (this.#syncing || this.#closed) return;
    this.#syncing = true;
    this.#cancelSync = this.options.clock.after(SYNC_DELAY_MS, () => {
      this.#cancelSync = null;
      this.#dirty = false;
      this.#active.sync((error) => {
        this.#reportSync(error);
        this.#syncing = false;
        if (this.#dirty) this.#syncSoon();
      });
    });
  }

  #reportSync(error: NodeJS.ErrnoException | null): void {
    // The segment may have been drained and deleted meanwhile; then the database has the rows.
    if (error && error.code !== "EBADF")
      this.options.log.error("fdatasync of the usage journal failed", { error });
  }

  /** The oldest rows that are not drained; null if there are none. */
  next(): Batch | null {
    this.writeGathered();
    for (;;) {
      const segment = this.#segments[0]!;
      if (segment.drained < segment.size) return { segment, start: segment.drained, end: segment.size };
      if (segment === this.#active) return null;
      this.#remove(segment);
    }
  }

  advance(
    { segment, start, end }: Batch,
    { rows, length, damaged }: Pick<SettleReport, "rows" | "length" | "damaged">,
  ): void {
    if (damaged.length > 0) this.#setAside(segment, damaged);
    // Nobody writes this file any more, so its last line will never be completed.
    if (length === 0)
      this.options.log.warn("dropped an incomplete last line of the usage journal", { file: segment.path });
    const drained = length === 0 ? end : start + length;
    this.#backlogBytes -= drained - segment.drained;
    segment.drained = drained;
    if (segment.own) this.drained += rows;
    if (segment.drained === segment.size && segment !== this.#active) this.#remove(segment);
  }

  #remove(segment: Segment): void {
    this.#segments = this.#segments.filter((other) => other !== segment);
    segment.delete();
    if (segment.own) return;
    const instance = instanceOf(basename(segment.path))!;
    if (!this.#segments.some(({ path }) => instanceOf(basename(path)) === instance)) this.#unlock(instance);
  }

  /** Moves unusable lines to a file for inspection. */
  #setAside(segment: Segment, lines: readonly string[]): void {
    this.options.log.error("damaged lines in the usage journal were set aside", {
      file: segment.path,
      lines: lines.length,
      kept_in: DAMAGED_FILE,
    });
    appendFileSync(join(this.options.dir, DAMAGED_FILE), lines.map((line) => `${line}\n`).join(""), {
      mode: 0o600,
    });
  }

  /** Takes out the first row of a batch, which the database refuses for its contents, and returns it. */
  setAsideFirst(batch: Batch): JournalEntry[] {
    const { segment, start, end } = batch;
    const { entries, damaged, length } = readLines({ file: segment.path, start, end, rowsMax: 1 });
    const lines = entries.map((entry) => encodeEntry(entry).trimEnd());
    this.advance(batch, { rows: 1, length, damaged: [...lines, ...damaged] });
    return entries;
  }

  /** Rows of this run that wait for the database. */
  get ownRows(): number {
    return this.appended - this.drained - this.lost;
  }

  /** Whether there is no room for what new requests would add. */
  get isFull(): boolean {
    if (this.#refused.length >= REFUSED_ROWS_FULL) this.retryRefused();
    return this.#refused.length >= REFUSED_ROWS_FULL || this.#backlogBytes > BACKLOG_BYTES_MAX;
  }

  /** Something waits for the database, possibly not in the file yet. */
  get hasBacklog(): boolean {
    return this.#backlogBytes > 0 || this.#gathered.length > 0;
  }

  get backlog(): { rows: number; bytes: number } {
    let rows = this.ownRows;
    for (const segment of this.#segments)
      if (!segment.own) rows += Math.ceil((segment.size - segment.drained) / ROW_BYTES_TYPICAL);
    return { rows, bytes: this.#backlogBytes };
  }

  /** Brings everything to the disk and deletes the drained files. */
  close(): void {
    this.#closed = true;
    this.#cancelSync?.();
    this.writeGathered();
    this.retryRefused();
    for (const line of this.#refused)
      this.options.log.error("usage row lost: journal write failed", { line });
    for (const segment of this.#segments) {
      if (segment.drained === segment.size) segment.delete();
      else segment.leave();
    }
    for (const lock of this.#locks.values()) lock.release();
  }
}
