import {
  closeSync,
  fdatasync,
  fdatasyncSync,
  ftruncateSync,
  openSync,
  readSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { type Decoded, decodeLines } from "./codec.ts";

/** A file takes lines up to this size: those of several batches. */
export const SEGMENT_BYTES = 4 * 1024 * 1024;

export interface Lines {
  file: string;
  start: number;
  end: number;
  rowsMax: number;
}

/** The first lines of a range; it has none when its only line is incomplete. */
export function readLines({ file, start, end, rowsMax }: Lines): Decoded {
  const fd = openSync(file, "r");
  try {
    for (let length = SEGMENT_BYTES; ; length *= 2) {
      const bytes = Buffer.allocUnsafe(Math.min(length, end - start));
      const got = readSync(fd, bytes, 0, bytes.length, start);
      const decoded = decodeLines(bytes.subarray(0, got), rowsMax);
      // More is read only when a single line needs it.
      if (decoded.length > 0 || got < length) return decoded;
    }
  } finally {
    closeSync(fd);
  }
}

/** One file of a journal, and how far it has been drained. */
export class Segment {
  /** Bytes that are safely whole lines. */
  size: number;
  drained = 0;
  /** Ends in the part of a line that could not be removed. */
  #broken = false;
  #fd: number | null = null;

  constructor(
    readonly path: string,
    /** This process writes it; false: one that is gone left it. */
    readonly own: boolean,
  ) {
    this.size = own ? 0 : statSync(path).size;
  }

  /** Opened when it is needed, and again after it was closed. */
  get #opened(): number {
    this.#fd ??= openSync(this.path, "a", 0o600);
    return this.#fd;
  }

  /** Appends whole lines; false when there is no room. Throws when not all can be written; none count then. */
  append(lines: string): boolean {
    const bytes = Buffer.byteLength(lines);
    if (this.#broken || (this.size > 0 && this.size + bytes > SEGMENT_BYTES)) return false;
    const written = writeSync(this.#opened, lines);
    if (written !== bytes) {
      // A disk that fills up may take a part; should that stay, nothing may follow it.
      this.#broken = true;
      ftruncateSync(this.#opened, this.size);
      this.#broken = false;
      throw new Error(`only ${written} of ${bytes} bytes were written to ${this.path}`);
    }
    this.size += bytes;
    return true;
  }

  /** Brings what was written to the disk, without waiting for it. */
  sync(done: (error: NodeJS.ErrnoException | null) => void): void {
    fdatasync(this.#opened, done);
  }

  /** Leaves the file for a later run, on the disk. */
  leave(): void {
    if (this.own) fdatasyncSync(this.#opened);
    this.close();
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
