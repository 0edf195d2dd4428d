import { createReadStream, createWriteStream } from "node:fs";
import { chmod, type FileHandle, mkdir, open, realpath, symlink } from "node:fs/promises";
import { dirname, join, posix, sep } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { crc32, createInflateRaw, inflateRawSync } from "node:zlib";
import { isErrno, SetupError } from "./errors.ts";
import { dataOffset, invalidArchive, readAt, readZipDirectory, type ZipEntry } from "./zip-directory.ts";

/** A Chrome build unpacks to about 600 MB. */
const UNPACKED_BYTES_MAX = 4 * 1024 ** 3;
const NAME_BYTES_MAX = 1024;
const LINK_BYTES_MAX = 4096;
/** The default of 16 KiB makes unpacking wait for many thousand turns of the event loop. */
const CHUNK_BYTES = 256 * 1024;
const METHOD_STORED = 0;
const METHOD_DEFLATED = 8;

const TYPE_MASK = 0o170000;
const TYPE_DIRECTORY = 0o040000;
const TYPE_FILE = 0o100000;
const TYPE_LINK = 0o120000;
/** For an archive that does not say: a browser has many executables and no file is harmed by being one. */
const MODE_UNKNOWN = 0o755;

export interface ExtractResult {
  files: number;
  bytes: number;
}

export interface ExtractOptions {
  onProgress?: (doneBytes: number, totalBytes: number) => void;
}

/** A relative path of plain names. Anything else could leave the target directory on one system or another. */
function checkedName(name: string): string {
  const plain = name.endsWith("/") ? name.slice(0, -1) : name;
  const bad =
    plain === "" ||
    Buffer.byteLength(name) > NAME_BYTES_MAX ||
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused here
    /[\u0000-\u001f\\:]/.test(plain) ||
    plain.split("/").some((part) => part === "" || part === "." || part === "..");
  if (bad) throw invalidArchive(`the name ${JSON.stringify(name.slice(0, 200))} is not a safe path`);
  return plain;
}

type Kind = "directory" | "file" | "link";

function kindOf(entry: ZipEntry): Kind {
  if (entry.name.endsWith("/")) return "directory";
  const type = (entry.unixMode ?? TYPE_FILE) & TYPE_MASK;
  if (type === TYPE_LINK) return "link";
  if (type === TYPE_DIRECTORY) return "directory";
  if (type === TYPE_FILE || type === 0) return "file";
  throw invalidArchive(`${entry.name} is neither a file, a directory nor a link`);
}

function checkEntries(entries: ZipEntry[]): Map<string, { entry: ZipEntry; kind: Kind }> {
  const byName = new Map<string, { entry: ZipEntry; kind: Kind }>();
  const folded = new Set<string>();
  let total = 0;
  for (const entry of entries) {
    const name = checkedName(entry.name);
    // Two names that differ only in case are one file on macOS and Windows.
    const key = name.normalize("NFC").toLowerCase();
    if (folded.has(key)) throw invalidArchive(`${name} is in it twice`);
    folded.add(key);
    total += entry.bytes;
    if (total > UNPACKED_BYTES_MAX)
      throw invalidArchive(`it unpacks to more than ${UNPACKED_BYTES_MAX} bytes`);
    if (entry.method !== METHOD_STORED && entry.method !== METHOD_DEFLATED)
      throw invalidArchive(`${name} uses compression method ${entry.method}`);
    if (entry.method === METHOD_STORED && entry.bytes !== entry.compressedBytes)
      throw invalidArchive(`${name} has two different sizes`);
    byName.set(name, { entry, kind: kindOf(entry) });
  }
  return byName;
}

/** Passes data on while it keeps to the announced size, and compares size and checksum at the end. */
function verifier(entry: ZipEntry, onBytes: (count: number) => void): Transform {
  let seen = 0;
  let sum = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      seen += chunk.length;
      if (seen > entry.bytes) return done(invalidArchive(`${entry.name} is larger than announced`));
      sum = crc32(chunk, sum);
      onBytes(chunk.length);
      done(null, chunk);
    },
    flush(done) {
      const intact = seen === entry.bytes && sum === entry.crc32;
      done(intact ? null : invalidArchive(`${entry.name} is damaged`));
    },
  });
}

async function writeEntry(
  archive: { path: string; file: FileHandle },
  { entry, target }: { entry: ZipEntry; target: string },
  onBytes: (count: number) => void,
): Promise<void> {
  const mode = entry.unixMode === null ? MODE_UNKNOWN : entry.unixMode & 0o777;
  const start = await dataOffset(archive.file, entry);
  // "wx": a fresh directory has no such file yet, so nothing is ever written through an existing path.
  const output = createWriteStream(target, { flags: "wx", mode: mode | 0o600 });
  const source =
    entry.compressedBytes === 0
      ? []
      : createReadStream(archive.path, {
          start,
          end: start + entry.compressedBytes - 1,
          highWaterMark: CHUNK_BYTES,
        });
  if (entry.method === METHOD_DEFLATED)
    await pipeline(source, createInflateRaw({ chunkSize: CHUNK_BYTES }), verifier(entry, onBytes), output);
  else await pipeline(source, verifier(entry, onBytes), output);
  // The umask took bits away at creation; set-user-id bits were never asked for.
  await chmod(target, mode | 0o600);
}

async function linkTarget(
  file: FileHandle,
  { entry, name }: { entry: ZipEntry; name: string },
): Promise<string> {
  if (entry.bytes > LINK_BYTES_MAX || entry.compressedBytes > LINK_BYTES_MAX)
    throw invalidArchive(`the link ${name} is too long`);
  const raw = await readAt(file, await dataOffset(file, entry), entry.compressedBytes);
  const bytes =
    entry.method === METHOD_DEFLATED ? inflateRawSync(raw, { maxOutputLength: LINK_BYTES_MAX }) : raw;
  if (crc32(bytes) !== entry.crc32) throw invalidArchive(`${name} is damaged`);
  const target = bytes.toString("utf8");
  const resolved = posix.normalize(posix.join(posix.dirname(name), target));
  const leaves = resolved === ".." || resolved.startsWith("../") || posix.isAbsolute(target);
  if (target === "" || leaves || target.includes("\0") || target.includes("\\"))
    throw invalidArchive(`the link ${name} leads out of the archive`);
  return target;
}

/** Each link looked harmless by itself; through one another they must not lead out either. */
async function checkLinks(directory: string, names: string[]): Promise<void> {
  const root = await realpath(directory);
  for (const name of names) {
    const target = await realpath(join(directory, name)).catch(() => null);
    if (target === null || !`${target}${sep}`.startsWith(`${root}${sep}`))
      throw invalidArchive(`the link ${name} leads nowhere or out of the archive`);
  }
}

/** Unpacks into a directory that does not exist yet. Links come last, so no file is written through one. */
export async function extractZip(
  path: string,
  directory: string,
  options: ExtractOptions = {},
): Promise<ExtractResult> {
  const file = await open(path, "r");
  try {
    const entries = checkEntries(await readZipDirectory(file));
    const totalBytes = [...entries.values()].reduce((sum, { entry }) => sum + entry.bytes, 0);
    let doneBytes = 0;
    const onBytes = (count: number) => {
      doneBytes += count;
      options.onProgress?.(doneBytes, totalBytes);
    };
    await mkdir(directory);
    for (const [name, { entry, kind }] of entries) {
      const target = join(directory, name);
      await mkdir(kind === "directory" ? target : dirname(target), { recursive: true });
      if (kind === "file") await writeEntry({ path, file }, { entry, target }, onBytes);
    }
    for (const [name, { entry, kind }] of entries)
      if (kind === "link") await symlink(await linkTarget(file, { entry, name }), join(directory, name));
    await checkLinks(
      directory,
      [...entries].filter(([, { kind }]) => kind === "link").map(([name]) => name),
    );
    return { files: entries.size, bytes: doneBytes };
  } catch (error) {
    if (error instanceof SetupError) throw error;
    if (isErrno(error, "ENOSPC", "EDQUOT"))
      throw new SetupError("cache_unusable", `There is no room to unpack the browser in ${directory}.`, {
        wayOut: "Free about 1 GB, or set BROWSER_CACHE_DIR to a place that has it.",
        cause: error,
      });
    if (isErrno(error, "EACCES", "EPERM", "EROFS"))
      throw new SetupError("cache_unusable", `The browser cannot be unpacked in ${directory}: ${error}.`, {
        wayOut: "Make the directory writable, or set BROWSER_CACHE_DIR to one that is.",
        cause: error,
      });
    // Inflate errors and paths that clash (a file where a directory must be) are the archive's fault.
    throw invalidArchive(error instanceof Error ? error.message : String(error), error);
  } finally {
    await file.close();
  }
}
