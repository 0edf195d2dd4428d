/** The folder that the browser keeps its cookies and storage in: a throw-away one, or one that stays. */
import { Database } from "bun:sqlite";
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ToolError } from "../errors.ts";

export interface Profile {
  dir: string;
  /** Deleted when the browser ends. */
  isThrowAway: boolean;
  /** Lets the next tool use it. */
  release(): void;
}

/** The lock is a transaction, which ends with the process that holds it, however that ends. */
function lock(dir: string): () => void {
  const database = new Database(join(dir, "browser-tool.lock"), { create: true });
  try {
    database.run("PRAGMA busy_timeout = 0");
    database.run("BEGIN EXCLUSIVE");
  } catch {
    database.close();
    throw new ToolError(
      "browser_unavailable",
      `The profile ${dir} is in use by another browser-tool. End that one, or use another --profile.`,
    );
  }
  return () => database.close();
}

export function openProfile(wanted: string | null): Profile {
  if (wanted === null)
    return { dir: mkdtempSync(join(tmpdir(), "browser-tool-")), isThrowAway: true, release() {} };
  mkdirSync(wanted, { recursive: true, mode: 0o700 });
  return { dir: wanted, isThrowAway: false, release: lock(wanted) };
}

/** A browser that knows no way to log in shows the page that a server sends along with its challenge. */
export function askForNoLogins(dir: string): void {
  const path = join(dir, "Local State");
  let state: Record<string, unknown> = {};
  try {
    state = JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
  } catch {
    // A new profile has none.
  }
  writeFileSync(path, JSON.stringify({ ...state, auth: { schemes: "" } }));
}
