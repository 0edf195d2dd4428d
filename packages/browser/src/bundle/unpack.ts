/** At run time: lays the embedded libraries down in the shared cache, where the browser's loader finds them. */
import { randomUUID } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isErrno, messageOf, SetupError } from "../resolve/errors.ts";
import { withLock } from "../resolve/lock.ts";
import { type EmbeddedLibrary, embeddedFileName, embeddedLibraries } from "./embedded.ts";

const UNPACK_MS_MAX = 60_000;
const TEMPORARY_PREFIX = ".tmp-";

export interface UnpackOptions {
  cacheDir: string;
  libraries?: EmbeddedLibrary[];
  /** The content of a library by its checksum. */
  open?: (sha256: string) => Promise<Uint8Array>;
}

async function openEmbedded(sha256: string): Promise<Uint8Array> {
  const name = embeddedFileName(sha256);
  const file = Bun.embeddedFiles.find((each) => (each as Blob & { name?: string }).name === name);
  if (!file) throw damaged(`it has no ${name}`);
  return file.bytes();
}

function damaged(why: string): SetupError {
  return new SetupError("bundle_invalid", `The libraries in this executable cannot be used: ${why}.`, {
    wayOut: "Download or build the tool again.",
  });
}

const sha256Of = (content: Uint8Array) => new Bun.CryptoHasher("sha256").update(content).digest("hex");

/** Whether every library is there as it was built in. The browser runs what lies there, so all of it is looked at. */
async function isWhole(directory: string, libraries: EmbeddedLibrary[]): Promise<boolean> {
  for (const { name, sha256 } of libraries) {
    try {
      if (sha256Of(await readFile(join(directory, name))) !== sha256) return false;
    } catch (error) {
      if (isErrno(error, "ENOENT", "ENOTDIR", "EISDIR")) return false;
      throw error;
    }
  }
  return true;
}

/** Written beside the final place and renamed, so the directory exists only when it is complete. */
async function lay(directory: string, temporary: string, { libraries, open }: Required<UnpackOptions>) {
  try {
    await mkdir(temporary, { recursive: true });
    for (const { name, sha256 } of libraries) {
      const content = await open(sha256);
      if (sha256Of(content) !== sha256) throw damaged(`the checksum of ${name} is wrong`);
      await writeFile(join(temporary, name), content, { mode: 0o755, flush: true });
    }
    await rename(directory, `${temporary}-old`).catch((error) => {
      if (!isErrno(error, "ENOENT")) throw error;
    });
    await rename(temporary, directory);
  } finally {
    await rm(temporary, { recursive: true, force: true });
    await rm(`${temporary}-old`, { recursive: true, force: true });
  }
}

/** With the lock held, every temporary directory of these libraries belongs to a process that is gone. */
async function removeLeftovers(parent: string, prefix: string): Promise<void> {
  for (const name of await readdir(parent))
    if (name.startsWith(prefix)) await rm(join(parent, name), { recursive: true, force: true });
}

/** The directory that has the libraries; null when none are built in. Any number of processes may ask at once. */
export async function unpackLibraries(options: UnpackOptions): Promise<string | null> {
  const { cacheDir, libraries = embeddedLibraries(), open = openEmbedded } = options;
  if (libraries.length === 0) return null;
  const id = sha256Of(Buffer.from(JSON.stringify(libraries))).slice(0, 32);
  const parent = join(cacheDir, "libs");
  const directory = join(parent, id);
  if (await isWhole(directory, libraries)) return directory;
  const lockOptions = { timeoutMs: UNPACK_MS_MAX };
  return withLock(join(cacheDir, "locks", `libs-${id}.lock`), lockOptions, async () => {
    if (await isWhole(directory, libraries)) return directory;
    const prefix = `${TEMPORARY_PREFIX}${id}-`;
    try {
      await mkdir(parent, { recursive: true });
      await removeLeftovers(parent, prefix);
      await lay(directory, join(parent, `${prefix}${randomUUID()}`), { cacheDir, libraries, open });
    } catch (error) {
      if (error instanceof SetupError) throw error;
      throw new SetupError("cache_unusable", `The cache ${cacheDir} cannot be used: ${messageOf(error)}.`, {
        wayOut: "Make the directory writable, or set BROWSER_CACHE_DIR to one that is.",
        cause: error,
      });
    }
    return directory;
  });
}
