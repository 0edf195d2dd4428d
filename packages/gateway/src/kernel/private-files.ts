import { chmodSync, closeSync, existsSync, mkdirSync, openSync, readdirSync } from "node:fs";
import { join } from "node:path";

const PRIVATE_FOLDER = 0o700;
const PRIVATE_FILE = 0o600;

/** The mode of a file that belongs to another account is left to that account. */
function change(path: string, mode: number): void {
  try {
    chmodSync(path, mode);
  } catch (error) {
    const { code } = error as { code?: string };
    if (code !== "EPERM" && code !== "ENOENT" && code !== "EROFS") throw error;
  }
}

export function privateFolder(path: string): void {
  mkdirSync(path, { recursive: true, mode: PRIVATE_FOLDER });
  change(path, PRIVATE_FOLDER);
}

/** Creates an empty file unless it exists, and removes access for others. SQLite gives the files beside it the same mode. */
export function privateFile(path: string): void {
  if (!existsSync(path)) closeSync(openSync(path, "a", PRIVATE_FILE));
  change(path, PRIVATE_FILE);
}

export function closeFolder(path: string): void {
  privateFolder(path);
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    const inside = join(path, entry.name);
    if (entry.isDirectory()) closeFolder(inside);
    else if (entry.isFile()) change(inside, PRIVATE_FILE);
  }
}
