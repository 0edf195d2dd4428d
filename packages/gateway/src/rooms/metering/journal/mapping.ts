import { closeSync, openSync, rmSync, statfsSync, writeSync } from "node:fs";
import { dirname } from "node:path";

/**
 * Where a block that was written once is written again in place. Elsewhere a store into a mapping may need a
 * block that a full disk does not have, and the kernel answers that by ending the process.
 */
const OVERWRITES_IN_PLACE = new Set([
  0xef53, // ext2, ext3, ext4
  0x01021994, // tmpfs
]);

const ZEROS = Buffer.alloc(64 * 1024);

/** Throws when the disk has no room for all of them. */
function writeZeros(fd: number, bytes: number): void {
  for (let left = bytes; left > 0; ) left -= writeSync(fd, ZEROS, 0, Math.min(left, ZEROS.length));
}

/**
 * Makes a file of `bytes` zeros and maps it into memory, shared with the kernel's page cache: what is stored
 * there is in the file at once, and stays there when the process is killed. The zeros are really written, so
 * that a disk without room is found here. Null where that does not work; then no file is left behind.
 */
export function mapNewFile(path: string, bytes: number): Buffer | null {
  let fd: number | null = null;
  try {
    if (!OVERWRITES_IN_PLACE.has(statfsSync(dirname(path)).type)) return null;
    fd = openSync(path, "wx", 0o600);
    writeZeros(fd, bytes);
    const mapped = Bun.mmap(path, { shared: true });
    return Buffer.from(mapped.buffer, mapped.byteOffset, mapped.byteLength);
  } catch {
    // Whatever the reason, writing line by line is tried next, and says what is wrong if that fails as well.
    if (fd !== null) rmSync(path, { force: true });
    return null;
  } finally {
    if (fd !== null) closeSync(fd);
  }
}
