import { open, readFile, rm, stat, writeFile } from "node:fs/promises";
import { isErrno, messageOf, SetupError } from "./errors.ts";
import { redactUrl } from "./settings.ts";
import { openSocksBridge, type SocksBridge } from "./socks-bridge.ts";
import { SocksRefusal } from "./socks5.ts";

const ATTEMPTS_MAX = 5;
const RETRY_DELAY_MS = 250;
const REDIRECTS_MAX = 5;
/** The zips are about 200 MB. */
const ARCHIVE_BYTES_MAX = 2 * 1024 ** 3;
const PROGRESS_INTERVAL_MS = 100;

export interface Progress {
  phase: "wait" | "download" | "verify" | "unpack";
  doneBytes: number;
  totalBytes: number | null;
}

export interface DownloadOptions {
  url: string;
  /** The file that grows; what is there from an earlier try is continued when the server confirms it. */
  path: string;
  proxy: URL | null;
  /** For each request. */
  timeoutMs: number;
  onProgress?: (progress: Progress) => void;
}

export interface DownloadResult {
  bytes: number;
  /** Part of the file came from an earlier request, so a wrong checksum may be the seam's fault. */
  resumed: boolean;
}

/** What the server said about the file when the part was begun, to tell whether it is still the same file. */
interface PartMeta {
  /** A digest, because a mirror's URL may carry credentials. */
  source: string;
  validator: string | null;
  totalBytes: number | null;
}

/** A failure that another request may get past. */
class Transient extends Error {}

function failed(url: string, why: string, cause?: unknown): SetupError {
  return new SetupError("download_failed", `Downloading ${redactUrl(url)} failed: ${why}.`, {
    wayOut:
      "Check the network, set BROWSER_DOWNLOAD_PROXY or BROWSER_CHROME_MIRROR, or install a browser and set BROWSER_CHROME_PATH.",
    cause,
  });
}

function metaPath(path: string): string {
  return `${path}.json`;
}

function sourceDigest(url: string): string {
  return new Bun.CryptoHasher("sha256").update(url).digest("hex");
}

export async function discardPart(path: string): Promise<void> {
  await rm(path, { force: true });
  await rm(metaPath(path), { force: true });
}

async function readPart(path: string, url: string): Promise<{ bytes: number; meta: PartMeta } | null> {
  try {
    const meta = JSON.parse(await readFile(metaPath(path), "utf8")) as PartMeta;
    const { size } = await stat(path);
    const usable = meta.source === sourceDigest(url) && meta.validator !== null && size > 0;
    return usable && size <= (meta.totalBytes ?? Number.POSITIVE_INFINITY) ? { bytes: size, meta } : null;
  } catch (error) {
    if (isErrno(error, "ENOENT") || error instanceof SyntaxError) return null;
    throw error;
  }
}

/** A weak ETag does not promise equal bytes. */
function validatorOf(headers: Headers): string | null {
  const etag = headers.get("etag");
  return etag && !etag.startsWith("W/") ? etag : headers.get("last-modified");
}

/** Credentials in the mirror's URL are sent to that server only, wherever it may redirect to. */
function authorizedInit(current: URL, mirror: URL, init: BunFetchRequestInit): BunFetchRequestInit {
  if (!mirror.username || current.origin !== mirror.origin) return init;
  const credentials = `${decodeURIComponent(mirror.username)}:${decodeURIComponent(mirror.password)}`;
  const authorization = `Basic ${Buffer.from(credentials).toString("base64")}`;
  return { ...init, headers: { ...init.headers, authorization } };
}

async function request(url: string, init: BunFetchRequestInit): Promise<Response> {
  const mirror = new URL(url);
  let current = new URL(url);
  for (let hop = 0; hop <= REDIRECTS_MAX; hop++) {
    current.username = "";
    current.password = "";
    const response = await fetch(current, {
      ...authorizedInit(current, mirror, init),
      redirect: "manual",
    });
    const location = response.headers.get("location");
    if (response.status < 300 || response.status > 399 || !location) return response;
    await response.body?.cancel();
    const next = new URL(location, current);
    if (next.protocol !== "https:" && current.protocol === "https:")
      throw failed(url, `the server sent it on from https to ${next.protocol.replace(":", "")}`);
    current = next;
  }
  throw failed(url, `more than ${REDIRECTS_MAX} redirects`);
}

interface BodyPlan {
  /** Where the body's first byte belongs. */
  offset: number;
  totalBytes: number | null;
}

/** What the answer's bytes are: the rest of our part, the whole file, or nothing usable. */
function planBody(response: Response, part: { bytes: number; meta: PartMeta } | null): BodyPlan | "restart" {
  if (response.status === 206) {
    const range = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(response.headers.get("content-range") ?? "");
    const totalBytes = range?.[3] && range[3] !== "*" ? Number(range[3]) : null;
    const fits = part && range && Number(range[1]) === part.bytes && totalBytes === part.meta.totalBytes;
    return fits ? { offset: part.bytes, totalBytes } : "restart";
  }
  if (response.status === 416 && part) return "restart";
  const length = response.headers.get("content-length");
  return { offset: 0, totalBytes: length ? Number(length) : null };
}

async function saveBody(response: Response, plan: BodyPlan, options: DownloadOptions): Promise<number> {
  const { path, onProgress } = options;
  const { totalBytes } = plan;
  const file = await open(path, plan.offset > 0 ? "a" : "w");
  let doneBytes = plan.offset;
  let shownAt = Number.NEGATIVE_INFINITY;
  try {
    for await (const chunk of response.body ?? []) {
      doneBytes += chunk.length;
      if (doneBytes > (totalBytes ?? ARCHIVE_BYTES_MAX))
        throw failed(options.url, "the server sent more than it announced");
      await file.writeFile(chunk);
      const now = performance.now();
      if (now - shownAt > PROGRESS_INTERVAL_MS || doneBytes === totalBytes) {
        shownAt = now;
        onProgress?.({ phase: "download", doneBytes, totalBytes });
      }
    }
  } finally {
    await file.close();
  }
  if (totalBytes !== null && doneBytes < totalBytes)
    throw new Transient(`the connection ended after ${doneBytes} of ${totalBytes} bytes`);
  return doneBytes;
}

async function attempt(options: DownloadOptions, proxyUrl: string | null): Promise<DownloadResult> {
  const { url, path, timeoutMs } = options;
  const part = await readPart(path, url);
  if (part && part.bytes === part.meta.totalBytes) return { bytes: part.bytes, resumed: true };
  const headers: Record<string, string> = { "accept-encoding": "identity" };
  if (part?.meta.validator) {
    headers.range = `bytes=${part.bytes}-`;
    headers["if-range"] = part.meta.validator;
  }
  const init: BunFetchRequestInit = { headers, signal: AbortSignal.timeout(timeoutMs), timeout: false };
  const response = await request(url, proxyUrl ? { ...init, proxy: proxyUrl } : init);
  const plan = planBody(response, part);
  if (plan === "restart") {
    await response.body?.cancel();
    await discardPart(path);
    throw new Transient("the file on the server has changed since the download began");
  }
  if (!response.ok) {
    await response.body?.cancel();
    const why = `the server answered ${response.status} ${response.statusText}`.trim();
    if (response.status >= 500 || response.status === 408 || response.status === 429)
      throw new Transient(why);
    throw failed(url, why);
  }
  if ((plan.totalBytes ?? 0) > ARCHIVE_BYTES_MAX) throw failed(url, `${plan.totalBytes} bytes is too large`);
  if (plan.offset === 0) {
    await discardPart(path);
    const meta: PartMeta = {
      source: sourceDigest(url),
      validator: validatorOf(response.headers),
      totalBytes: plan.totalBytes,
    };
    await writeFile(metaPath(path), JSON.stringify(meta));
  }
  return { bytes: await saveBody(response, plan, options), resumed: plan.offset > 0 };
}

/** Turns an attempt's failure into the error to report, or null when a retry makes sense. */
function finalError(error: unknown, options: DownloadOptions): SetupError | null {
  if (error instanceof SetupError) return error;
  if (error instanceof DOMException && error.name === "TimeoutError")
    return new SetupError(
      "download_timeout",
      `Downloading ${redactUrl(options.url)} took longer than ${options.timeoutMs / 1000} s.`,
      {
        wayOut:
          "What arrived is kept and the next run continues it; raise BROWSER_DOWNLOAD_TIMEOUT_SECS to give it longer.",
        cause: error,
      },
    );
  if (isErrno(error, "ENOSPC", "EDQUOT", "EACCES", "EROFS", "EPERM"))
    return new SetupError("cache_unusable", `The download cannot be saved: ${messageOf(error)}.`, {
      wayOut: "Make room and make the cache writable, or set BROWSER_CACHE_DIR to another directory.",
      cause: error,
    });
  return null;
}

/** Fetches a file, trying again and continuing where it stopped; the file is whole when this returns. */
export async function download(options: DownloadOptions): Promise<DownloadResult> {
  const { proxy } = options;
  const bridge: SocksBridge | null = proxy?.protocol.startsWith("socks5")
    ? await openSocksBridge(proxy)
    : null;
  const proxyUrl = bridge?.proxyUrl ?? proxy?.href ?? null;
  try {
    for (let count = 1; ; count++) {
      try {
        const result = await attempt(options, proxyUrl);
        return { ...result, resumed: result.resumed || count > 1 };
      } catch (error) {
        const final = finalError(error, options);
        if (final) throw final;
        const refusal = bridge?.lastFailure();
        const where = proxy ? ` (through the proxy ${redactUrl(proxy)})` : "";
        const why = refusal
          ? `the SOCKS5 proxy ${proxy ? redactUrl(proxy) : ""}: ${refusal.message}`
          : `${messageOf(error)}${where}`;
        if (count === ATTEMPTS_MAX || refusal instanceof SocksRefusal) throw failed(options.url, why, error);
      }
      await Bun.sleep(RETRY_DELAY_MS * 2 ** (count - 1));
    }
  } finally {
    bridge?.close();
  }
}
