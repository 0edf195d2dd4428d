import { existsSync, linkSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { privateFile, privateFolder } from "../../kernel/private-files.ts";

const SECRET_BYTES = 32;

/** The signing key: the configured one, or one that is made once and kept in the data directory. */
export function loadJwtSecret(configured: string | null, dataDir: string): Uint8Array {
  if (configured !== null) return new TextEncoder().encode(configured);
  privateFolder(dataDir);
  const path = join(dataDir, "jwt-secret");
  if (!existsSync(path))
    writeOnce(path, Buffer.from(crypto.getRandomValues(new Uint8Array(SECRET_BYTES))).toString("hex"));
  privateFile(path);
  return new TextEncoder().encode(readFileSync(path, "utf8").trim());
}

/** Atomic, and the first of two processes wins: link() refuses to replace a file. */
function writeOnce(path: string, text: string): void {
  const temporary = `${path}.${process.pid}`;
  writeFileSync(temporary, text, { mode: 0o600 });
  try {
    linkSync(temporary, path);
  } catch (error) {
    const { code } = error as { code?: string };
    // File systems without hard links: a rename is the best that is left.
    if (code !== "EEXIST") renameSync(temporary, path);
  } finally {
    rmSync(temporary, { force: true });
  }
}
