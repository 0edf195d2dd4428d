/** From the settings to a running engine: resolution, then the pipe of a launched Chromium or a foreign library. */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { embeddedLibraries } from "../bundle/embedded.ts";
import type { EngineTransport, ResolvedEngine } from "../engines/contract.ts";
import type { ForeignEngine } from "../engines/foreign/index.ts";
import { ToolError } from "../errors.ts";
import { hasHostList } from "../policy/url-policy.ts";
import { SetupError } from "../resolve/errors.ts";
import { progressLines } from "../resolve/progress.ts";
import { resolveEngine } from "../resolve/resolve.ts";
import { defaultCacheDir } from "../resolve/settings.ts";
import type { SessionOptions } from "../session.ts";
import { type AddressGate, openAddressGate } from "./address-gate.ts";
import { launchBrowser } from "./launch.ts";
import { type ProxyLogin, prepareProxy } from "./proxy.ts";

type OnBlocked = Parameters<typeof openAddressGate>[0]["onBlocked"];

export interface OpenedEngine {
  engine: ResolvedEngine;
  transport: EngineTransport;
  profileDir: string | null;
  proxyLogin: ProxyLogin | null;
  /** Why a connection to a host failed, where the browser itself cannot tell. */
  failureOf(host: string): string | null;
  /** Closes what was opened beside the engine. */
  dispose(): void;
}

/** Distributions wrap the browser in a shell script that starts a dozen programs first; the binary itself is quicker. */
export function binaryBehind(path: string): string {
  const binary = "/usr/lib/chromium/chromium";
  return path === "/usr/bin/chromium" && existsSync(binary) ? binary : path;
}

/** Through a proxy names are looked up by the proxy, so the addresses that it connects to cannot be checked here. */
function hasOtherProxy({ proxy, env }: SessionOptions): boolean {
  const names = ["http_proxy", "https_proxy", "all_proxy"];
  return Boolean(proxy) || names.some((name) => env[name] || env[name.toUpperCase()]);
}

/** Libraries that were built into the tool are laid down first; nothing is loaded for that where there are none. */
async function libraryEnvOf(env: SessionOptions["env"]): Promise<Record<string, string>> {
  if (embeddedLibraries().length === 0) return {};
  const { bundledLibraryEnv, unpackLibraries } = await import("../bundle/index.ts");
  const directory = await unpackLibraries({ cacheDir: defaultCacheDir(env) });
  return directory ? bundledLibraryEnv(directory, env) : {};
}

/** Connections of the browser pass the gate, unless it may open every address or another proxy is in the way. */
async function gateFor(options: SessionOptions, onBlocked: OnBlocked): Promise<AddressGate | null> {
  const { urlPolicy: policy } = options;
  if (hasHostList(policy) && hasOtherProxy(options))
    throw new ToolError(
      "browser_unavailable",
      "--allow-host and --block-host cannot be kept to through another proxy: start without --proxy and proxy variables.",
    );
  if ((policy.allowLinkLocal && !hasHostList(policy)) || hasOtherProxy(options)) return null;
  return openAddressGate({
    onBlocked,
    resolve: options.resolveHost,
    policy,
  });
}

type Started = Pick<OpenedEngine, "transport" | "profileDir" | "proxyLogin" | "dispose">;

async function startChromium(
  path: string,
  options: SessionOptions,
  gate: AddressGate | null,
): Promise<Started> {
  const { env, headful, viewport, ignoreHttpsErrors } = options;
  const libraryEnv = await libraryEnvOf(env);
  const { server, login, close } = await prepareProxy(options.proxy);
  try {
    const { transport, profileDir } = launchBrowser({
      path: binaryBehind(path),
      headful,
      proxy: gate?.server ?? server,
      proxyBypass: gate?.bypass,
      viewport,
      ignoreHttpsErrors,
      hasProxyLogin: login !== null,
      libraryEnv,
      profileDir: options.profileDir,
      // Calls between browsers would go past the gate. Chromium has renamed the flag.
      extraFlags: hasHostList(options.urlPolicy)
        ? ["", "force-"].map((name) => `--${name}webrtc-ip-handling-policy=disable_non_proxied_udp`)
        : [],
    });
    return { transport, profileDir, proxyLogin: login, dispose: close };
  } catch (error) {
    close();
    throw error;
  }
}

async function startForeign(
  engine: ForeignEngine,
  options: SessionOptions,
  gate: AddressGate | null,
): Promise<Started> {
  if (options.profileDir || options.state)
    throw new ToolError("not_supported", `--profile and --state need a Chromium, not ${engine.name}.`);
  const { openForeignTransport } = await import("../engines/foreign/index.ts");
  const profileDir = mkdtempSync(join(tmpdir(), "browser-tool-"));
  // The engine deletes it, even when the tool is killed; this is for one that does not.
  const dispose = () => rmSync(profileDir, { recursive: true, force: true });
  try {
    const transport = await openForeignTransport(engine, {
      headless: !options.headful,
      ...options.viewport,
      proxy: gate?.server ?? options.proxy,
      proxyBypass: gate?.bypass,
      ignoreHttpsErrors: options.ignoreHttpsErrors,
      profileDir,
    });
    return { transport, profileDir, proxyLogin: null, dispose };
  } catch (error) {
    dispose();
    throw error;
  }
}

/** The browser belongs to somebody else: how it was started cannot be changed, and it is not ended. */
async function attach(url: string, options: SessionOptions): Promise<OpenedEngine> {
  const { profileDir, state, proxy, headful, ignoreHttpsErrors, urlPolicy } = options;
  if (profileDir || state || proxy || headful || ignoreHttpsErrors || hasHostList(urlPolicy))
    throw new ToolError(
      "browser_unavailable",
      "With --attach the browser's own profile, proxy, window and certificates are used, and hosts cannot be held to a list: leave out --profile, --state, --proxy, --headful, --ignore-https-errors, --allow-host and --block-host.",
    );
  const { attachTo } = await import("../cdp/websocket.ts");
  return {
    engine: { kind: "cdp", name: "chrome", path: url, source: "attached" },
    transport: await attachTo(url),
    profileDir: null,
    proxyLogin: null,
    failureOf: () => null,
    dispose() {},
  };
}

async function open(options: SessionOptions, onBlocked: OnBlocked): Promise<OpenedEngine> {
  const { env, backend, onProgress, attachUrl } = options;
  if (attachUrl) return attach(attachUrl, options);
  const engine = await resolveEngine({
    env,
    backend,
    onProgress: onProgress && progressLines(onProgress),
  });
  const gate = await gateFor(options, onBlocked);
  try {
    const started =
      engine.kind === "foreign"
        ? await startForeign(engine, options, gate)
        : await startChromium(engine.path, options, gate);
    return {
      engine,
      ...started,
      failureOf: (host) => gate?.failureOf(host) ?? null,
      dispose() {
        started.dispose();
        gate?.close();
      },
    };
  } catch (error) {
    gate?.close();
    throw error;
  }
}

export async function openEngine(options: SessionOptions, onBlocked: OnBlocked): Promise<OpenedEngine> {
  try {
    return await open(options, onBlocked);
  } catch (error) {
    throw error instanceof SetupError ? new ToolError("browser_unavailable", error.message) : error;
  }
}
