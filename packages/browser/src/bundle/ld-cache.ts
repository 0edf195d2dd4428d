import { readFileSync } from "node:fs";

const OLD_MAGIC = "ld.so-1.7.0";
const NEW_MAGIC = "glibc-ld.so.cache1.1";
const OLD_HEADER_BYTES = 16;
const OLD_ENTRY_BYTES = 12;
const NEW_HEADER_BYTES = 48;
const NEW_ENTRY_BYTES = 24;
const ENTRIES_MAX = 1_000_000;

function cString(bytes: Buffer, offset: number): string {
  const end = bytes.indexOf(0, offset);
  return bytes.toString("utf8", offset, end < 0 ? bytes.length : end);
}

/** Where the current format begins: at the start, or after the table kept for loaders of the last century. */
function newFormatStart(bytes: Buffer): number | null {
  if (bytes.toString("latin1", 0, NEW_MAGIC.length) === NEW_MAGIC) return 0;
  if (bytes.toString("latin1", 0, OLD_MAGIC.length) !== OLD_MAGIC || bytes.length < OLD_HEADER_BYTES)
    return null;
  const after = OLD_HEADER_BYTES + bytes.readUInt32LE(12) * OLD_ENTRY_BYTES;
  const start = Math.ceil(after / 8) * 8;
  return bytes.toString("latin1", start, start + NEW_MAGIC.length) === NEW_MAGIC ? start : null;
}

/**
 * /etc/ld.so.cache as a map from library name to its paths, in the file's order; null when unreadable. Builds for some
 * processors only are left out: the one for all is always there too.
 */
export function readLoaderCache(path: string): Map<string, string[]> | null {
  let file: Buffer;
  try {
    file = readFileSync(path);
  } catch {
    return null;
  }
  const start = newFormatStart(file);
  if (start === null || file.length < start + NEW_HEADER_BYTES) return null;
  const bytes = file.subarray(start);
  // The flags byte says which byte order wrote the file; zero is a cache from before it existed.
  const big = (bytes[28]! & 3) === 3;
  const u32 = (at: number) => (big ? bytes.readUInt32BE(at) : bytes.readUInt32LE(at));
  const count = u32(20);
  if (count > ENTRIES_MAX || NEW_HEADER_BYTES + count * NEW_ENTRY_BYTES > bytes.length) return null;
  const paths = new Map<string, string[]>();
  for (let index = 0; index < count; index++) {
    const at = NEW_HEADER_BYTES + index * NEW_ENTRY_BYTES;
    const isForSome = u32(at + 16) !== 0 || u32(at + 20) !== 0;
    if (isForSome) continue;
    const name = cString(bytes, u32(at + 4));
    paths.set(name, [...(paths.get(name) ?? []), cString(bytes, u32(at + 8))]);
  }
  return paths;
}
