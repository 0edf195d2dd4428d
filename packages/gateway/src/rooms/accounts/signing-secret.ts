import { existsSync, linkSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BoundedMap } from "../../kernel/bounded.ts";
import { hmacSha256 } from "../../kernel/keyed-hash.ts";
import { privateFile, privateFolder } from "../../kernel/private-files.ts";
import type { Needs } from "../foundation.ts";

const SECRET_BYTES = 32;

/** The signing key: from the configuration, or generated once and kept in the data directory. */
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
    // File systems without hard links: rename is the next best.
    if (code !== "EEXIST") renameSync(temporary, path);
  } finally {
    rmSync(temporary, { force: true });
  }
}

const TOPIC = "signing-secret";
const FINGERPRINT_LENGTH = 16;
const OTHERS_MAX = 100;

/** Instances with different secrets reject each other's tokens. Each announces a fingerprint; a mismatch is logged once. */
export async function watchSigning({
  bus,
  log,
  secret,
}: Needs<"bus" | "log"> & { secret: Uint8Array }): Promise<void> {
  if (!bus.shared) return;
  const own = hmacSha256(secret, TOPIC).toString("hex").slice(0, FINGERPRINT_LENGTH);
  const others = new BoundedMap<string, true>(OTHERS_MAX);
  const heard = bus.subscribe(TOPIC, (other) => {
    if (other === own || others.get(other)) return;
    others.set(other, true);
    log.error(
      "another instance signs tokens with a different secret, so each rejects the other's: set the same SERVICE_JWT_SECRET everywhere",
    );
    bus.publish(TOPIC, own);
  });
  await heard.ready;
  bus.publish(TOPIC, own);
}
