/** One file from a URL to disk: resumed where it stopped, checked, and in place only when it is whole. */
import { createReadStream } from "node:fs";
import {
  type FileHandle,
  mkdir,
  open,
  readFile,
  rename,
  rm,
  stat,
  statfs,
  writeFile,
} from "node:fs/promises";
import { dirname } from "node:path";
import { describeError, errorCode } from "../errors.ts";
import { formatBytes, shownUrl } from "./format.ts";
import { BusyError, isBusy, pauseAfter } from "./retry.ts";

const FAILURES_MAX = 6;
const STALL_TIMEOUT_MS = 60_000;
const REDIRECTS_MAX = 6;

export interface DownloadOptions {
  url: string;
  destination: string;
  sha256: string | null;
  sizeBytes: number | null;
  /** Sent to the URL's own origin only, never to where it redirects. */
  token: string | null;
  signal: AbortSignal;
  /** Bytes of this file that are on disk, and how many there will be where that is known. */
  onBytes: (doneBytes: number, totalBytes: number | null) => void;
  stallTimeoutMs?: number;
  retryDelayMs?: number;
}

/** Retrying will not help. */
class PermanentError extends Error {}

/** What is remembered beside a partial file, to know whether the rest still belongs to it. */
interface PartNote {
  url: string;
  validator: string | null;
}

export async function downloadFile(options: DownloadOptions): Promise<void> {
  const { destination, signal } = options;
  await mkdir(dirname(destination), { recursive: true });
  let failures = 0;
  let bytesSeen = 0;
  for (;;) {
    try {
      await attempt(options, (doneBytes) => {
        if (doneBytes > bytesSeen) failures = 0;
        bytesSeen = Math.max(bytesSeen, doneBytes);
      });
      return;
    } catch (error) {
      signal.throwIfAborted();
      const full = diskFull(error, destination);
      if (full) throw full;
      failures++;
      if (error instanceof PermanentError || failures >= FAILURES_MAX)
        throw new Error(`download of ${shownUrl(options.url)} failed: ${describeError(error)}`, {
          cause: error,
        });
      await pauseAfter(error, { failures, signal, retryDelayMs: options.retryDelayMs });
    }
  }
}

async function attempt(options: DownloadOptions, progressed: (doneBytes: number) => void): Promise<void> {
  const { destination, sha256, sizeBytes } = options;
  const part = `${destination}.part`;
  const note = await readNote(part);
  const offset = await resumableBytes(options, note);
  const hasher = sha256 ? new Bun.CryptoHasher("sha256") : null;
  const resumed = offset > 0;

  if (resumed && offset === sizeBytes) {
    if (hasher) await hashFile(part, hasher);
  } else await fetchRest(options, { offset, note, hasher, progressed });

  const digest = hasher?.digest("hex");
  if (sha256 && digest !== sha256) {
    await discard(part);
    const message = `checksum mismatch: expected sha256 ${sha256}, got ${digest}`;
    // A part kept from before may be what is wrong, so a resumed download gets one fresh start.
    throw resumed ? new Error(message) : new PermanentError(message);
  }
  await rename(part, destination);
  await rm(notePath(part), { force: true });
}

async function fetchRest(
  options: DownloadOptions,
  from: {
    offset: number;
    note: PartNote | null;
    hasher: Bun.CryptoHasher | null;
    progressed: (doneBytes: number) => void;
  },
): Promise<void> {
  const { destination } = options;
  const { hasher, progressed } = from;
  const part = `${destination}.part`;
  const stall = new AbortController();
  try {
    const { offset: askedFrom, note } = from;
    const response = await request(options, { offset: askedFrom, validator: note?.validator ?? null, stall });
    if (response.status === 206 && !options.sha256 && validatorOf(response) !== note?.validator) {
      await discard(part);
      throw new Error("the file has changed since a part of it was fetched");
    }
    const offset = response.status === 206 ? askedFrom : 0;
    const totalBytes = totalOf(response, offset);
    checkSize(options, totalBytes);
    await checkSpace(destination, totalBytes === null ? null : totalBytes - offset);
    await writeNote(part, { url: options.url, validator: validatorOf(response) });
    if (hasher && offset > 0) await hashFile(part, hasher);
    const doneBytes = await receive({
      options,
      response,
      part,
      offset,
      hasher,
      totalBytes,
      stall,
      progressed,
    });
    const expectedBytes = totalBytes ?? options.sizeBytes;
    if (expectedBytes !== null && doneBytes !== expectedBytes)
      throw new Error(`the connection ended after ${doneBytes} of ${expectedBytes} bytes`);
  } finally {
    // Cancels the rest of the response, whatever went wrong.
    stall.abort();
  }
}

/** How much of a partial file may be kept: only what a validator or the checksum will vouch for. */
async function resumableBytes(options: DownloadOptions, note: PartNote | null): Promise<number> {
  const part = `${options.destination}.part`;
  const size = await stat(part).then(
    (info) => info.size,
    () => 0,
  );
  const sameFile = note?.url === options.url && (note.validator !== null || options.sha256 !== null);
  const tooLarge = options.sizeBytes !== null && size > options.sizeBytes;
  if (size > 0 && sameFile && !tooLarge) return size;
  await discard(part);
  return 0;
}

async function request(
  options: DownloadOptions,
  from: { offset: number; validator: string | null; stall: AbortController },
): Promise<Response> {
  const headers = new Headers({ "accept-encoding": "identity" });
  if (from.offset > 0) headers.set("range", `bytes=${from.offset}-`);
  if (from.offset > 0 && from.validator) headers.set("if-range", from.validator);
  let url = new URL(options.url);
  const { origin } = url;
  const stallTimeoutMs = options.stallTimeoutMs ?? STALL_TIMEOUT_MS;
  const signal = AbortSignal.any([options.signal, from.stall.signal]);
  for (let redirects = 0; redirects <= REDIRECTS_MAX; redirects++) {
    if (options.token && url.origin === origin) headers.set("authorization", `Bearer ${options.token}`);
    else headers.delete("authorization");
    const late = () => from.stall.abort(new Error(`no answer for ${stallTimeoutMs / 1000} s`));
    const timer = setTimeout(late, stallTimeoutMs);
    const response = await fetch(url, { headers, redirect: "manual", signal }).finally(() =>
      clearTimeout(timer),
    );
    const location = response.headers.get("location");
    if (response.status < 300 || response.status >= 400 || !location) return accepted(response, options);
    await response.body?.cancel();
    url = new URL(location, url);
    if (url.protocol !== "http:" && url.protocol !== "https:")
      throw new PermanentError(`redirected to ${url.protocol}, which is not followed`);
  }
  throw new PermanentError(`more than ${REDIRECTS_MAX} redirects`);
}

async function accepted(response: Response, options: DownloadOptions): Promise<Response> {
  const { status } = response;
  if (status === 200 || status === 206) return response;
  await response.body?.cancel();
  if (status === 416) {
    await discard(`${options.destination}.part`);
    throw new Error("the server no longer has the range that was missing");
  }
  if (status === 404 || status === 410)
    throw new PermanentError(`HTTP ${status}: no such file at this address`);
  if (status === 401 || status === 403)
    throw new PermanentError(`HTTP ${status}: access refused; a token may be missing or lack rights`);
  if (isBusy(response)) throw new BusyError(`HTTP ${status}`, response);
  throw new PermanentError(`HTTP ${status}`);
}

function totalOf(response: Response, offset: number): number | null {
  if (response.status === 206) {
    const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get("content-range") ?? "");
    if (!range || Number(range[1]) !== offset) throw new Error("the server resumed at another place");
    return range[2] === "*" ? null : Number(range[2]);
  }
  const length = response.headers.get("content-length");
  return length === null || response.headers.has("content-encoding") ? null : Number(length);
}

function checkSize({ sizeBytes }: DownloadOptions, totalBytes: number | null): void {
  if (sizeBytes !== null && totalBytes !== null && sizeBytes !== totalBytes)
    throw new PermanentError(`the file has ${totalBytes} bytes, its list entry says ${sizeBytes}`);
}

/** A strong ETag, else the date: what If-Range accepts. */
function validatorOf(response: Response): string | null {
  const etag = response.headers.get("etag");
  if (etag && !etag.startsWith("W/")) return etag;
  return response.headers.get("last-modified");
}

async function receive(from: {
  options: DownloadOptions;
  response: Response;
  part: string;
  offset: number;
  hasher: Bun.CryptoHasher | null;
  totalBytes: number | null;
  stall: AbortController;
  progressed: (doneBytes: number) => void;
}): Promise<number> {
  const { options, response, offset, hasher, totalBytes } = from;
  const stallTimeoutMs = options.stallTimeoutMs ?? STALL_TIMEOUT_MS;
  const onStall = () => from.stall.abort(new Error(`no bytes for ${stallTimeoutMs / 1000} s`));
  let timer = setTimeout(onStall, stallTimeoutMs);
  const file: FileHandle = await open(from.part, offset > 0 ? "r+" : "w", 0o644);
  let doneBytes = offset;
  options.onBytes(doneBytes, totalBytes);
  try {
    for await (const chunk of response.body ?? []) {
      clearTimeout(timer);
      await writeAll(file, chunk, doneBytes);
      hasher?.update(chunk);
      doneBytes += chunk.byteLength;
      from.progressed(doneBytes);
      options.onBytes(doneBytes, totalBytes);
      timer = setTimeout(onStall, stallTimeoutMs);
    }
    await file.datasync();
  } finally {
    clearTimeout(timer);
    await file.close();
  }
  return doneBytes;
}

async function writeAll(file: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let written = 0; written < bytes.byteLength; ) {
    const result = await file.write(bytes, written, bytes.byteLength - written, position + written);
    written += result.bytesWritten;
  }
}

async function hashFile(path: string, hasher: Bun.CryptoHasher): Promise<void> {
  for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 }))
    hasher.update(chunk as Buffer);
}

async function checkSpace(destination: string, neededBytes: number | null): Promise<void> {
  if (neededBytes === null) return;
  const disk = await statfs(dirname(destination));
  const freeBytes = disk.bavail * disk.bsize;
  if (freeBytes < neededBytes)
    throw new PermanentError(
      `disk full: ${formatBytes(neededBytes)} are needed in ${dirname(destination)}, ${formatBytes(freeBytes)} are free`,
    );
}

function diskFull(error: unknown, destination: string): Error | null {
  if (errorCode(error) !== "ENOSPC" && errorCode(error) !== "EDQUOT") return null;
  return new Error(`disk full while writing ${destination}: free some space, then deploy again`, {
    cause: error,
  });
}

const notePath = (part: string) => `${part}.json`;

async function readNote(part: string): Promise<PartNote | null> {
  try {
    const note: unknown = JSON.parse(await readFile(notePath(part), "utf8"));
    if (typeof note !== "object" || note === null || !("url" in note) || !("validator" in note)) return null;
    const { url, validator } = note;
    return typeof url === "string"
      ? { url, validator: typeof validator === "string" ? validator : null }
      : null;
  } catch {
    return null;
  }
}

const writeNote = (part: string, note: PartNote) => writeFile(notePath(part), JSON.stringify(note));

async function discard(part: string): Promise<void> {
  await Promise.all([rm(part, { force: true }), rm(notePath(part), { force: true })]);
}
