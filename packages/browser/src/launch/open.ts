/** From the settings to a running engine: resolution, then the pipe of a launched Chromium or a foreign library. */
import { existsSync } from "node:fs";
import type { EngineTransport, ResolvedEngine } from "../engines/contract.ts";
import { ToolError } from "../errors.ts";
import type { SessionOptions } from "../session.ts";
import { launchBrowser } from "./launch.ts";

export interface OpenedEngine {
  engine: ResolvedEngine;
  transport: EngineTransport;
  profileDir: string | null;
}

async function resolveEngine({ env }: Pick<SessionOptions, "env">): Promise<ResolvedEngine> {
  const override = env.BROWSER_CHROMIUM_PATH;
  if (override) return { kind: "cdp", name: "chromium", path: override, source: "override" };
  const path = Bun.which("chromium");
  if (path) return { kind: "cdp", name: "chromium", path, source: "system" };
  throw new ToolError("browser_unavailable", "No browser was found. Set BROWSER_CHROMIUM_PATH.");
}

/** Distributions wrap the browser in a shell script that starts a dozen programs first; the binary itself is quicker. */
function binaryBehind(path: string): string {
  const binary = "/usr/lib/chromium/chromium";
  return path === "/usr/bin/chromium" && existsSync(binary) ? binary : path;
}

export async function openEngine(options: SessionOptions): Promise<OpenedEngine> {
  const engine = await resolveEngine(options);
  if (engine.kind === "foreign")
    throw new ToolError("browser_unavailable", `The ${engine.name} engine is not available in this build.`);
  const { transport, profileDir } = launchBrowser({
    path: binaryBehind(engine.path),
    headful: options.headful,
    proxy: options.proxy,
    viewport: options.viewport,
  });
  return { engine, transport, profileDir };
}
