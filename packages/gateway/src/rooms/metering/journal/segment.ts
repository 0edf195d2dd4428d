import {
  closeSync,
  fdatasyncSync,
  ftruncateSync,
  openSync,
  readSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { type Decoded, decodeLines } from "./codec.ts";

/** One file of a journal, and how far it has been drained. */
export class Segment {
  /** Bytes that are safely whole lines. */
  size: number;
  drained = 0;
  /** Ends in the part of a line that could not be removed. */
  broken = false;
  #fd: number | null = null;

  constructor(
    readonly path: string,
    /** Written by this run of the process; otherwise left behind by an earlier one. */
    readonly own: boolean,
  ) {
    this.size = own ? 0 : statSync(path).size;
  }

  /** Opened when it is first needed. */
  get fd(): number {
    this.#fd ??= openSync(this.path, this.own ? "a+" : "r", 0o600);
    return this.#fd;
  }

  /** Appends a line; when it cannot be written whole, nothing of it counts and this throws. */
  append(line: string): void {
    const bytes = Buffer.byteLength(line);
    const written = writeSync(this.fd, line);
    if (written !== bytes) {
      // A disk that fills up may take a part of the line; should the part stay, nothing may follow it.
      this.broken = true;
      ftruncateSync(this.fd, this.size);
      this.broken = false;
      throw new Error(`only ${written} of ${bytes} bytes were written to ${this.path}`);
    }
    this.size += bytes;
  }

  /** The next lines; their bytes grow only when a single line needs it. */
  read(rowsMax: number, bytesMax: number): Decoded {
    for (let length = bytesMax; ; length *= 2) {
      const wanted = Math.min(length, this.size - this.drained);
      const bytes = Buffer.allocUnsafe(wanted);
      const got = readSync(this.fd, bytes, 0, wanted, this.drained);
      const decoded = decodeLines(bytes.subarray(0, got), rowsMax);
      if (decoded.length > 0 || got < length) return decoded;
    }
  }

  syncNow(): void {
    fdatasyncSync(this.fd);
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
