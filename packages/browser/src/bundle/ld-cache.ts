import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";

const OLD_MAGIC = "ld.so-1.7.0";
const NEW_MAGIC = "glibc-ld.so.cache1.1";
const OLD_HEADER_BYTES = 16;
const OLD_ENTRY_BYTES = 12;
const NEW_HEADER_BYTES = 48;
const NEW_ENTRY_BYTES = 24;
/** In this bit the cache marks libraries of a `glibc-hwcaps` directory; other bits are the older scheme. */
const HWCAP_EXTENSION = 1n << 62n;
const ENTRIES_MAX = 1_000_000;
const INCLUDE_DEPTH_MAX = 16;

export interface CacheEntry {
  name: string;
  path: string;
  /** The processor level that it is built for; null for everyone. */
  hwcap: string | null;
}

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

/** /etc/ld.so.cache as a map from library name to its entries, in the file's order; null when unreadable. */
export function readLoaderCache(path: string): Map<string, CacheEntry[]> | null {
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
  const u64 = (at: number) => (big ? bytes.readBigUInt64BE(at) : bytes.readBigUInt64LE(at));
  const count = u32(20);
  if (count > ENTRIES_MAX || NEW_HEADER_BYTES + count * NEW_ENTRY_BYTES > bytes.length) return null;
  const entries = new Map<string, CacheEntry[]>();
  for (let index = 0; index < count; index++) {
    const at = NEW_HEADER_BYTES + index * NEW_ENTRY_BYTES;
    const name = cString(bytes, u32(at + 4));
    const value = cString(bytes, u32(at + 8));
    const bits = u64(at + 16);
    const level = /\/glibc-hwcaps\/([^/]+)\//.exec(value)?.[1];
    const hwcap = bits === 0n ? null : (bits & HWCAP_EXTENSION) !== 0n && level ? level : "legacy";
    const list = entries.get(name);
    if (list) list.push({ name, path: value, hwcap });
    else entries.set(name, [{ name, path: value, hwcap }]);
  }
  return entries;
}

/** The directories that /etc/ld.so.conf and its includes tell ldconfig to visit. */
export function readLoaderConf(path: string, sysroot = "", depth = 0): string[] {
  if (depth > INCLUDE_DEPTH_MAX) return [];
  let text: string;
  try {
    text = readFileSync(join(sysroot, path), "utf8");
  } catch {
    return [];
  }
  const directories: string[] = [];
  for (const raw of text.split("\n")) {
    const line = raw.replace(/#.*/, "").trim();
    const include = /^include\s+(.+)$/.exec(line)?.[1];
    if (include) {
      for (const pattern of include.split(/\s+/)) {
        const absolute = pattern.startsWith("/") ? pattern : join(dirname(path), pattern);
        for (const file of expandGlob(absolute, sysroot))
          directories.push(...readLoaderConf(file, sysroot, depth + 1));
      }
    } else if (line && !line.startsWith("hwcap")) {
      directories.push(...line.split(/[\s:,]+/).filter((entry) => entry.startsWith("/")));
    }
  }
  return directories;
}

/** ldconfig's includes only ever use wildcards in the file name. */
function expandGlob(pattern: string, sysroot: string): string[] {
  if (!/[*?[]/.test(pattern)) return [pattern];
  const directory = dirname(pattern);
  const glob = new Glob(pattern);
  try {
    return readdirSync(join(sysroot, directory))
      .map((name) => join(directory, name))
      .filter((path) => glob.match(path))
      .sort();
  } catch {
    return [];
  }
}
