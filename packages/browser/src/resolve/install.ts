import { createReadStream } from "node:fs";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { ChromeBuild } from "./chrome-build.ts";
import { type DownloadResult, discardPart, download, type Progress } from "./download.ts";
import { isErrno, SetupError } from "./errors.ts";
import { withLock } from "./lock.ts";
import { cacheUnusable, clearPlace, placeWhole } from "./place.ts";
import { redactUrl } from "./settings.ts";
import { extractZip } from "./zip-extract.ts";

const MARKER = ".install.json";
/** How much longer than a download a waiting process gives the one that installs. */
const UNPACK_ALLOWANCE_MS = 300_000;

export interface InstallOptions {
  cacheDir: string;
  proxy: URL | null;
  timeoutMs: number;
  onProgress?: (progress: Progress) => void;
}

export interface Installed {
  path: string;
  /** `cache`: it was there already, or another process installed it meanwhile. */
  source: "cache" | "download";
  /** Of the zip. */
  sha256: string;
  /** It was compared with an expected value. */
  verified: boolean;
}

/** Written into the directory before it gets its name; what it says must still be true when it is read. */
interface Marker {
  executableBytes: number;
  sha256: string;
  verified: boolean;
  url: string;
}

function installDir(build: ChromeBuild, cacheDir: string): string {
  return join(cacheDir, "chrome", `${build.platform}-${build.version}`);
}

/** The installed build, if it is whole and is the one with the expected checksum. */
export async function findInstalled(build: ChromeBuild, cacheDir: string): Promise<Installed | null> {
  const directory = installDir(build, cacheDir);
  const path = join(directory, build.executable);
  try {
    const marker = JSON.parse(await readFile(join(directory, MARKER), "utf8")) as Marker;
    const { size } = await stat(path);
    const wanted = build.sha256 === null || marker.sha256 === build.sha256;
    if (!wanted || size !== marker.executableBytes) return null;
    return { path, source: "cache", sha256: marker.sha256, verified: marker.verified };
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR") || error instanceof SyntaxError) return null;
    throw error;
  }
}

async function sha256Of(path: string, onProgress?: (progress: Progress) => void): Promise<string> {
  const hasher = new Bun.CryptoHasher("sha256");
  const totalBytes = (await stat(path)).size;
  let doneBytes = 0;
  for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 })) {
    hasher.update(chunk);
    doneBytes += chunk.length;
    onProgress?.({ phase: "verify", doneBytes, totalBytes });
  }
  return hasher.digest("hex");
}

/** Downloads until the checksum is right: a wrong one is tried once more from the start if it was continued. */
async function fetchVerified(build: ChromeBuild, path: string, options: InstallOptions): Promise<string> {
  const { url } = build;
  const { proxy, timeoutMs, onProgress } = options;
  for (let round = 1; ; round++) {
    const result: DownloadResult = await download({ url, path, proxy, timeoutMs, onProgress });
    const sha256 = await sha256Of(path, onProgress);
    if (build.sha256 === null || build.sha256 === sha256) return sha256;
    await discardPart(path);
    if (result.resumed && round === 1) continue;
    throw new SetupError(
      "checksum_mismatch",
      `The downloaded Chrome ${build.version} for ${build.platform} has SHA-256 ${sha256}, expected ${build.sha256}.`,
      {
        wayOut:
          "Nothing was installed. If a mirror repacks the zip, set BROWSER_CHROME_SHA256 to the value that you trust; otherwise do not use this source.",
      },
    );
  }
}

async function unpack(
  build: ChromeBuild,
  zip: string,
  sha256: string,
  { cacheDir, onProgress }: InstallOptions,
): Promise<string> {
  const final = installDir(build, cacheDir);
  await placeWhole(final, async (temporary) => {
    await extractZip(zip, temporary, {
      onProgress: (doneBytes, totalBytes) => onProgress?.({ phase: "unpack", doneBytes, totalBytes }),
    });
    const executable = await stat(join(temporary, build.executable)).catch(() => null);
    if (!executable?.isFile())
      throw new SetupError("archive_invalid", `The archive has no ${build.executable}.`, {
        wayOut: "Check that BROWSER_CHROME_MIRROR serves Chrome for Testing zips.",
      });
    const marker: Marker = {
      executableBytes: executable.size,
      sha256,
      verified: build.sha256 !== null,
      url: redactUrl(build.url),
    };
    await writeFile(join(temporary, MARKER), JSON.stringify(marker), { flush: true });
  });
  return join(final, build.executable);
}

/** The build from the cache, or downloaded into it; any number of processes may ask at once. */
export async function installChrome(build: ChromeBuild, options: InstallOptions): Promise<Installed> {
  const { cacheDir, timeoutMs, onProgress } = options;
  const present = await findInstalled(build, cacheDir);
  if (present) return present;
  const id = `${build.platform}-${build.version}`;
  const onWait = () => onProgress?.({ phase: "wait", doneBytes: 0, totalBytes: null });
  const lockOptions = { timeoutMs: timeoutMs + UNPACK_ALLOWANCE_MS, onWait };
  return withLock(join(cacheDir, "locks", `${id}.lock`), lockOptions, async () => {
    const meanwhile = await findInstalled(build, cacheDir);
    if (meanwhile) return meanwhile;
    const part = join(cacheDir, "downloads", `${id}.zip.part`);
    try {
      await clearPlace(installDir(build, cacheDir));
      await mkdir(join(cacheDir, "downloads"), { recursive: true });
    } catch (error) {
      throw cacheUnusable(cacheDir, error);
    }
    const sha256 = await fetchVerified(build, part, options);
    try {
      const path = await unpack(build, part, sha256, options);
      await discardPart(part);
      return { path, source: "download", sha256, verified: build.sha256 !== null };
    } catch (error) {
      // A full disk says nothing against the zip; anything else does, and the zip must not be met again.
      if (!(error instanceof SetupError && error.code === "cache_unusable")) await discardPart(part);
      throw error;
    }
  });
}
