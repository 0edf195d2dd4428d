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

/** A file takes lines up to this size, which is several batches. */
export const SEGMENT_BYTES = 4 * 1024 * 1024;

export interface Lines {
  file: string;
  start: number;
  end: number;
  rowsMax: number;
}

/** The first lines of a range; none if its only line is incomplete. */
export function readLines({ file, start, end, rowsMax }: Lines): Decoded {
  const fd = openSync(file, "r");
  try {
    for (let length = SEGMENT_BYTES; ; length *= 2) {
      const bytes = Buffer.allocUnsafe(Math.min(length, end - start));
      const got = readSync(fd, bytes, 0, bytes.length, start);
      const decoded = decodeLines(bytes.subarray(0, got), rowsMax);
      // Read more only if a single line needs it.
      if (decoded.length > 0 || got < length) return decoded;
    }
  } finally {
    closeSync(fd);
  }
}

/** One file of a journal, and how far it has been drained. */
export class Segment {
  /** Bytes of whole lines. */
  size: number;
  drained = 0;
  /** Ends in a partial line that could not be removed. */
  #broken = false;
  #fd: number | null = null;

  constructor(
    readonly path: string,
    /** This process writes it; false: an ended process left it. */
    readonly own: boolean,
  ) {
    this.size = own ? 0 : statSync(path).size;
  }

  get #opened(): number {
    this.#fd ??= openSync(this.path, "a", 0o600);
    return this.#fd;
  }

  /** Appends whole lines, or none; false if there is no room. Throws if not all could be written. */
  append(lines: string): boolean {
    const bytes = Buffer.byteLength(lines);
    if (this.#broken || (this.size > 0 && this.size + bytes > SEGMENT_BYTES)) return false;
    const written = writeSync(this.#opened, lines);
    if (written !== bytes) {
      // A full disk may take a part of them. If that part stays, nothing may follow it.
      this.#broken = true;
      ftruncateSync(this.#opened, this.size);
      this.#broken = false;
      throw new Error(`only ${written} of ${bytes} bytes were written to ${this.path}`);
    }
    this.size += bytes;
    return true;
  }

  sync(done: (error: NodeJS.ErrnoException | null) => void): void {
    fdatasync(this.#opened, done);
  }

  /** Leaves the file, on the disk, for a later run. */
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
