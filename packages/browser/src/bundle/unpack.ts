/** At run time: lays the embedded libraries down in the shared cache, where the browser's loader finds them. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isErrno, SetupError } from "../resolve/errors.ts";
import { withLock } from "../resolve/lock.ts";
import { cacheUnusable, clearPlace, placeWhole } from "../resolve/place.ts";
import { type EmbeddedLibrary, embeddedFileName, embeddedLibraries } from "./embedded.ts";

const UNPACK_MS_MAX = 60_000;

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

/** The directory that has the libraries; null when none are built in. Any number of processes may ask at once. */
export async function unpackLibraries(options: UnpackOptions): Promise<string | null> {
  const { cacheDir, libraries = embeddedLibraries(), open = openEmbedded } = options;
  if (libraries.length === 0) return null;
  const id = sha256Of(Buffer.from(JSON.stringify(libraries))).slice(0, 32);
  const directory = join(cacheDir, "libs", id);
  if (await isWhole(directory, libraries)) return directory;
  const lockOptions = { timeoutMs: UNPACK_MS_MAX };
  return withLock(join(cacheDir, "locks", `libs-${id}.lock`), lockOptions, async () => {
    if (await isWhole(directory, libraries)) return directory;
    try {
      await clearPlace(directory);
      await placeWhole(directory, async (temporary) => {
        await mkdir(temporary);
        for (const { name, sha256 } of libraries) {
          const content = await open(sha256);
          if (sha256Of(content) !== sha256) throw damaged(`the checksum of ${name} is wrong`);
          await writeFile(join(temporary, name), content, { mode: 0o755, flush: true });
        }
      });
    } catch (error) {
      throw error instanceof SetupError ? error : cacheUnusable(cacheDir, error);
    }
    return directory;
  });
}
