import { createHash } from "node:crypto";

/**
 * A folder name for any string: readable, and distinct even when two ids differ only in characters that are replaced.
 * `identity` is hashed instead of the name where the name alone does not identify the folder.
 */
export function safeFolderName(name: string, identity = name): string {
  const readable = name.replace(/[^A-Za-z0-9._-]+/g, "-").slice(0, 80);
  const digest = createHash("sha256").update(identity).digest("hex").slice(0, 10);
  return `${readable}-${digest}`;
}
