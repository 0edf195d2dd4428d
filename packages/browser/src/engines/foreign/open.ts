/** A foreign engine on a throw-away profile. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineTransport } from "../contract.ts";
import { type ForeignEngine, type ForeignOptions, openForeignTransport } from "./transport.ts";

export interface OpenedForeign {
  transport: EngineTransport;
  profileDir: string;
  dispose(): void;
}

export async function openForeignEngine(
  engine: ForeignEngine,
  options: Omit<ForeignOptions, "profileDir">,
): Promise<OpenedForeign> {
  const profileDir = mkdtempSync(join(tmpdir(), "browser-tool-"));
  // The engine deletes it, even when the tool is killed; this is for one that does not.
  const dispose = () => rmSync(profileDir, { recursive: true, force: true });
  try {
    return { transport: await openForeignTransport(engine, { ...options, profileDir }), profileDir, dispose };
  } catch (error) {
    dispose();
    throw error;
  }
}
