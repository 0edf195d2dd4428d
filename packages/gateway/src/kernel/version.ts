import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import manifest from "../../package.json" with { type: "json" };

export const VERSION: string = manifest.version;

declare const BUILD_HASH: string | undefined;

/** The commit this process runs: compiled in, written into an image, or read from the checkout. */
export function buildHash(root = join(import.meta.dir, "../../../..")): string {
  if (typeof BUILD_HASH === "string") return BUILD_HASH;
  const stamp = join(root, "BUILD_HASH");
  if (existsSync(stamp)) return readFileSync(stamp, "utf8").trim();
  try {
    const gitDir = join(root, ".git");
    const head = readFileSync(join(gitDir, "HEAD"), "utf8").trim();
    if (!head.startsWith("ref: ")) return head.slice(0, 12);
    const ref = head.slice(5);
    if (existsSync(join(gitDir, ref))) return readFileSync(join(gitDir, ref), "utf8").trim().slice(0, 12);
    const packed = readFileSync(join(gitDir, "packed-refs"), "utf8").split("\n");
    return packed.find((line) => line.endsWith(` ${ref}`))?.slice(0, 12) ?? "unknown";
  } catch {
    return "unknown";
  }
}
