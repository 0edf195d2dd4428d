import {
  closeSync,
  fdatasync,
  fdatasyncSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  rmSync,
  writeSync,
} from "node:fs";
import { type Decoded, decodeLines, type JournalEntry } from "./codec.ts";
import { RecentRows } from "./recent-rows.ts";

/** A file takes lines up to this size. */
export const SEGMENT_BYTES = 1024 * 1024;
const READ_BYTES = 128 * 1024;

/** One file of a journal, and how far it has been drained. */
abstract class SegmentFile {
  /** Bytes that are safely whole lines. */
  abstract readonly size: number;
  abstract readonly own: boolean;
  drained = 0;
  #fd: number | null = null;

  constructor(public path: string) {}

  protected abstract open(): number;

  /** Opened when it is needed, and again after it was closed. */
  get fd(): number {
    this.#fd ??= this.open();
    return this.#fd;
  }

  /** The next lines; their bytes grow only when a single line needs it. */
  read(rowsMax: number, end = this.size): Decoded {
    for (let length = READ_BYTES; ; length *= 2) {
      const wanted = Math.min(length, end - this.drained);
      const bytes = Buffer.allocUnsafe(wanted);
      const got = readSync(this.fd, bytes, 0, wanted, this.drained);
      const decoded = decodeLines(bytes.subarray(0, got), rowsMax);
      if (decoded.length > 0 || got < length) return decoded;
    }
  }

  /** Everything before `end` is in the database. */
  advance(end: number): void {
    this.drained = end;
  }

  close(): void {
    if (this.#fd !== null) closeSync(this.#fd);
    this.#fd = null;
  }

  delete(): void {
    this.close();
    rmSync(this.path, { force: true });
  }
}

/** A file that an earlier run of the process left behind. */
export class LeftSegment extends SegmentFile {
  readonly own = false;
  readonly size: number;

  constructor(path: string) {
    super(path);
    this.size = this.#endOfText();
    this.close();
  }

  protected open(): number {
    return openSync(this.path, "r");
  }

  /** Earlier versions made files of zeros and filled them. Lines contain no zero byte. */
  #endOfText(): number {
    const bytes = Buffer.allocUnsafe(READ_BYTES);
    for (let end = fstatSync(this.fd).size; end > 0; ) {
      const start = Math.max(0, end - READ_BYTES);
      const got = readSync(this.fd, bytes, 0, end - start, start);
      for (let i = got; i > 0; i--) if (bytes[i - 1] !== 0) return start + i;
      end = start;
    }
    return 0;
  }
}

/** A file that this process writes. */
export class OwnSegment extends SegmentFile {
  readonly own = true;
  size = 0;
  /** Ends in the part of a line that could not be removed. */
  #broken = false;
  readonly #recent = new RecentRows();

  protected open(): number {
    return openSync(this.path, "a+", 0o600);
  }

  /**
   * Appends a line, which ends in a newline. False when there is no room for it: another segment must take it.
   * Throws when it cannot be written whole; none of it counts then.
   */
  append(line: string, entry: JournalEntry): boolean {
    const bytes = Buffer.byteLength(line);
    if (this.#broken || (this.size > 0 && this.size + bytes > SEGMENT_BYTES)) return false;
    const written = writeSync(this.fd, line);
    if (written !== bytes) {
      // A disk that fills up may take a part of the line; should the part stay, nothing may follow it.
      this.#broken = true;
      ftruncateSync(this.fd, this.size);
      this.#broken = false;
      throw new Error(`only ${written} of ${bytes} bytes were written to ${this.path}`);
    }
    const start = this.size;
    this.size += bytes;
    this.#recent.add(entry, start, this.size);
    return true;
  }

  override read(rowsMax: number): Decoded {
    if (this.#recent.isEmpty) return super.read(rowsMax);
    if (this.drained < this.#recent.start) return super.read(rowsMax, this.#recent.start);
    return this.#recent.first(rowsMax);
  }

  override advance(end: number): void {
    super.advance(end);
    this.#recent.dropBefore(end);
  }

  /** Brings what was written to the disk, without waiting for it. */
  sync(done: (error: NodeJS.ErrnoException | null) => void): void {
    fdatasync(this.fd, done);
  }

  /** Leaves the file for a later run, on the disk. */
  leave(): void {
    fdatasyncSync(this.fd);
    this.close();
  }

  /** From now on its rows are read from the file. */
  forgetRecent(): void {
    this.#recent.clear();
  }
}

export type Segment = LeftSegment | OwnSegment;
