import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { messageOf, SetupError } from "../resolve/errors.ts";

const STRING_BYTES_MAX = 4096;
/** No table that the readers ask for comes near this; a larger request means a damaged or hostile file. */
const READ_BYTES_MAX = 16 * 1024 * 1024;

export function invalidBinary(path: string, why: string): SetupError {
  return new SetupError("binary_invalid", `${path} cannot be read as a binary: ${why}.`, {
    wayOut: "Check that the file is complete and is an ELF, Mach-O or PE file.",
  });
}

/** Random access to a binary file without loading it: browsers are hundreds of megabytes, their tables are not. */
export class ByteSource {
  readonly size: number;
  private constructor(
    readonly path: string,
    private readonly fd: number,
    public littleEndian: boolean,
  ) {
    this.size = fstatSync(fd).size;
  }

  /** Opens the file for the length of `use`. */
  static with<T>(path: string, use: (source: ByteSource) => T): T {
    let fd: number;
    try {
      fd = openSync(path, "r");
    } catch (error) {
      throw invalidBinary(path, messageOf(error));
    }
    try {
      return use(new ByteSource(path, fd, true));
    } finally {
      closeSync(fd);
    }
  }

  bytes(offset: number, length: number): Buffer {
    if (!Number.isSafeInteger(offset) || offset < 0 || length < 0 || offset + length > this.size)
      throw invalidBinary(this.path, `${length} bytes at ${offset} lie outside its ${this.size} bytes`);
    if (length > READ_BYTES_MAX)
      throw invalidBinary(this.path, `a table of ${length} bytes is not plausible`);
    const buffer = Buffer.alloc(length);
    let done = 0;
    while (done < length) {
      const read = readSync(this.fd, buffer, done, length - done, offset + done);
      if (read === 0) throw invalidBinary(this.path, "it ended while being read");
      done += read;
    }
    return buffer;
  }

  /** A view on a table, to be read with this file's byte order. */
  view(offset: number, length: number): DataView {
    const bytes = this.bytes(offset, length);
    return new DataView(bytes.buffer, bytes.byteOffset, length);
  }

  u16(offset: number): number {
    return this.view(offset, 2).getUint16(0, this.littleEndian);
  }

  u32(offset: number): number {
    return this.view(offset, 4).getUint32(0, this.littleEndian);
  }

  /** A NUL-terminated string; the limit keeps a damaged offset from reading the whole file. */
  cString(offset: number): string {
    const bytes = this.bytes(offset, Math.max(0, Math.min(STRING_BYTES_MAX, this.size - offset)));
    const end = bytes.indexOf(0);
    if (end < 0) throw invalidBinary(this.path, `the string at ${offset} does not end`);
    return bytes.toString("utf8", 0, end);
  }
}
