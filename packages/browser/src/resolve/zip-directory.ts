import type { FileHandle } from "node:fs/promises";
import { SetupError } from "./errors.ts";

const END_SIGNATURE = 0x06054b50;
const END_BYTES = 22;
const COMMENT_BYTES_MAX = 0xffff;
const CENTRAL_SIGNATURE = 0x02014b50;
const CENTRAL_BYTES = 46;
const LOCAL_SIGNATURE = 0x04034b50;
const LOCAL_BYTES = 30;
const MADE_ON_UNIX = 3;
const MADE_ON_MACOS = 19;
const FLAG_ENCRYPTED = 1;

const DIRECTORY_BYTES_MAX = 64 * 1024 * 1024;
const ENTRIES_MAX = 100_000;

export interface ZipEntry {
  name: string;
  method: number;
  crc32: number;
  compressedBytes: number;
  bytes: number;
  localOffset: number;
  /** File type and permissions as Unix has them; null from an archive made elsewhere. */
  unixMode: number | null;
}

export function invalidArchive(why: string, cause?: unknown): SetupError {
  return new SetupError("archive_invalid", `The downloaded archive cannot be used: ${why}.`, {
    wayOut:
      "Nothing was installed. Try again; if it stays, check BROWSER_CHROME_MIRROR and set BROWSER_CHROME_SHA256 to the checksum that you expect.",
    cause,
  });
}

export async function readAt(file: FileHandle, offset: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  let done = 0;
  while (done < length) {
    const { bytesRead } = await file.read(buffer, done, length - done, offset + done);
    if (bytesRead === 0) throw invalidArchive("it ends too early");
    done += bytesRead;
  }
  return buffer;
}

interface DirectoryPlace {
  offset: number;
  bytes: number;
  count: number;
}

async function findDirectory(file: FileHandle, fileBytes: number): Promise<DirectoryPlace> {
  if (fileBytes < END_BYTES) throw invalidArchive("it is too short for a zip file");
  const tailBytes = Math.min(fileBytes, END_BYTES + COMMENT_BYTES_MAX);
  const tail = await readAt(file, fileBytes - tailBytes, tailBytes);
  for (let at = tailBytes - END_BYTES; at >= 0; at--) {
    if (tail.readUInt32LE(at) !== END_SIGNATURE) continue;
    // A comment may contain the signature; the true record's comment ends with the file.
    if (at + END_BYTES + tail.readUInt16LE(at + 20) !== tailBytes) continue;
    return {
      count: tail.readUInt16LE(at + 10),
      bytes: tail.readUInt32LE(at + 12),
      offset: tail.readUInt32LE(at + 16),
    };
  }
  throw invalidArchive("it is not a zip file");
}

function readEntry(directory: Buffer, at: number): { entry: ZipEntry; next: number } {
  if (at + CENTRAL_BYTES > directory.length || directory.readUInt32LE(at) !== CENTRAL_SIGNATURE)
    throw invalidArchive("its directory is damaged");
  const nameBytes = directory.readUInt16LE(at + 28);
  const extraBytes = directory.readUInt16LE(at + 30);
  const next = at + CENTRAL_BYTES + nameBytes + extraBytes + directory.readUInt16LE(at + 32);
  if (next > directory.length) throw invalidArchive("its directory is cut off");
  const nameEnd = at + CENTRAL_BYTES + nameBytes;
  const madeOn = directory[at + 5];
  const mode = directory.readUInt32LE(at + 38) >>> 16;
  const entry: ZipEntry = {
    name: directory.toString("utf8", at + CENTRAL_BYTES, nameEnd),
    method: directory.readUInt16LE(at + 10),
    crc32: directory.readUInt32LE(at + 16),
    compressedBytes: directory.readUInt32LE(at + 20),
    bytes: directory.readUInt32LE(at + 24),
    localOffset: directory.readUInt32LE(at + 42),
    unixMode: (madeOn === MADE_ON_UNIX || madeOn === MADE_ON_MACOS) && mode !== 0 ? mode : null,
  };
  if (directory.readUInt16LE(at + 8) & FLAG_ENCRYPTED) throw invalidArchive(`${entry.name} is encrypted`);
  return { entry, next };
}

/** The entries by the central directory, which is the only list that unpacking trusts. */
export async function readZipDirectory(file: FileHandle): Promise<ZipEntry[]> {
  const fileBytes = (await file.stat()).size;
  const place = await findDirectory(file, fileBytes);
  if (place.count > ENTRIES_MAX) throw invalidArchive(`it has more than ${ENTRIES_MAX} entries`);
  if (place.bytes > DIRECTORY_BYTES_MAX || place.offset + place.bytes > fileBytes)
    throw invalidArchive("its directory lies outside the file");
  const directory = await readAt(file, place.offset, place.bytes);
  const entries: ZipEntry[] = [];
  let at = 0;
  for (let index = 0; index < place.count; index++) {
    const { entry, next } = readEntry(directory, at);
    entries.push(entry);
    at = next;
  }
  refuseOverlaps(entries, place.offset);
  return entries;
}

/** Entries that share their data are how a small file unpacks to petabytes. */
function refuseOverlaps(entries: ZipEntry[], directoryOffset: number): void {
  const ordered = entries.toSorted((a, b) => a.localOffset - b.localOffset);
  for (const [index, { name, localOffset, compressedBytes }] of ordered.entries()) {
    const end = ordered[index + 1]?.localOffset ?? directoryOffset;
    if (localOffset + LOCAL_BYTES + compressedBytes > end)
      throw invalidArchive(`${name} overlaps what follows it`);
  }
}

/** Where an entry's data begins; its local header may carry other extra fields than the directory. */
export async function dataOffset(file: FileHandle, entry: ZipEntry): Promise<number> {
  const header = await readAt(file, entry.localOffset, LOCAL_BYTES);
  if (header.readUInt32LE(0) !== LOCAL_SIGNATURE)
    throw invalidArchive(`${entry.name} is not where it should be`);
  return entry.localOffset + LOCAL_BYTES + header.readUInt16LE(26) + header.readUInt16LE(28);
}
