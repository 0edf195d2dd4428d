/** Directories of the cache that exist only when they are complete. */
import { randomUUID } from "node:crypto";
import { mkdir, readdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { isErrno, messageOf, SetupError } from "./errors.ts";

export const cacheUnusable = (path: string, cause: unknown) =>
  new SetupError("cache_unusable", `The cache cannot be used: ${path}: ${messageOf(cause)}.`, {
    wayOut: "Make the directory writable, or set BROWSER_CACHE_DIR to one that is.",
    cause,
  });

const prefixOf = (directory: string) => `.tmp-${basename(directory)}-`;

/** With the lock held, every temporary directory of this one belongs to a process that is gone. */
export async function clearPlace(directory: string): Promise<void> {
  const parent = dirname(directory);
  await mkdir(parent, { recursive: true });
  for (const name of await readdir(parent))
    if (name.startsWith(prefixOf(directory))) await rm(join(parent, name), { recursive: true, force: true });
}

/** Fills a directory beside the final place and renames it; what is in the way there goes. */
export async function placeWhole(
  directory: string,
  fill: (temporary: string) => Promise<void>,
): Promise<void> {
  const temporary = join(dirname(directory), `${prefixOf(directory)}${randomUUID()}`);
  try {
    await fill(temporary);
    await rename(directory, `${temporary}-old`).catch((error) => {
      if (!isErrno(error, "ENOENT")) throw error;
    });
    await rename(temporary, directory);
  } finally {
    await rm(temporary, { recursive: true, force: true });
    await rm(`${temporary}-old`, { recursive: true, force: true });
  }
}
