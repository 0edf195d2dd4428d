/** From the settings to a running engine: resolution, then the pipe of a launched Chromium or a foreign library. */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineTransport, ResolvedEngine } from "../engines/contract.ts";
import type { ForeignEngine } from "../engines/foreign/index.ts";
import { ToolError } from "../errors.ts";
import { SetupError } from "../resolve/errors.ts";
import { progressLines } from "../resolve/progress.ts";
import { resolveEngine } from "../resolve/resolve.ts";
import type { SessionOptions } from "../session.ts";
import { launchBrowser } from "./launch.ts";
import { type ProxyLogin, prepareProxy } from "./proxy.ts";

export interface OpenedEngine {
  engine: ResolvedEngine;
  transport: EngineTransport;
  profileDir: string | null;
  proxyLogin: ProxyLogin | null;
  /** Ends what was opened beside the engine. */
  dispose(): void;
}

/** Distributions wrap the browser in a shell script that starts a dozen programs first; the binary itself is quicker. */
export function binaryBehind(path: string): string {
  const binary = "/usr/lib/chromium/chromium";
  return path === "/usr/bin/chromium" && existsSync(binary) ? binary : path;
}

async function openForeign(engine: ForeignEngine, options: SessionOptions): Promise<OpenedEngine> {
  const { headful, proxy, viewport, ignoreHttpsErrors } = options;
  const { openForeignTransport } = await import("../engines/foreign/index.ts");
  const profileDir = mkdtempSync(join(tmpdir(), "browser-tool-"));
  // The engine deletes it, even when the tool is killed; this is for one that does not.
  const dispose = () => rmSync(profileDir, { recursive: true, force: true });
  try {
    const transport = await openForeignTransport(engine, {
      headless: !headful,
      ...viewport,
      proxy,
      ignoreHttpsErrors,
      profileDir,
    });
    return { engine, transport, profileDir, proxyLogin: null, dispose };
  } catch (error) {
    dispose();
    throw error;
  }
}

async function open(options: SessionOptions): Promise<OpenedEngine> {
  const { env, backend, headful, proxy, viewport, ignoreHttpsErrors, onProgress } = options;
  const engine = await resolveEngine({
    env,
    backend,
    onProgress: onProgress && progressLines(onProgress),
  });
  if (engine.kind === "foreign") return openForeign(engine, options);
  const { server, login, close } = await prepareProxy(proxy);
  try {
    const { transport, profileDir } = launchBrowser({
      path: binaryBehind(engine.path),
      headful,
      proxy: server,
      viewport,
      ignoreHttpsErrors,
      hasProxyLogin: login !== null,
    });
    return { engine, transport, profileDir, proxyLogin: login, dispose: close };
  } catch (error) {
    close();
    throw error;
  }
}

export async function openEngine(options: SessionOptions): Promise<OpenedEngine> {
  try {
    return await open(options);
  } catch (error) {
    throw error instanceof SetupError ? new ToolError("browser_unavailable", error.message) : error;
  }
}
