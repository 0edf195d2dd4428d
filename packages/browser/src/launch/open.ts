/** From the settings to a running engine: resolution, then the pipe of a launched Chromium or a foreign library. */
import { existsSync } from "node:fs";
import type { EngineTransport, ResolvedEngine } from "../engines/contract.ts";
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

async function open(options: SessionOptions): Promise<OpenedEngine> {
  const { env, backend, headful, proxy, viewport, ignoreHttpsErrors, onProgress } = options;
  const engine = await resolveEngine({
    env,
    backend,
    onProgress: onProgress && progressLines(onProgress),
  });
  if (engine.kind === "foreign") {
    const { openForeignEngine } = await import("../engines/foreign/index.ts");
    const foreign = { headless: !headful, ...viewport, proxy, ignoreHttpsErrors };
    return { engine, proxyLogin: null, ...(await openForeignEngine(engine, foreign)) };
  }
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
