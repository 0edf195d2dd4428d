import { homedir } from "node:os";
import { join } from "node:path";
import type { EngineName } from "../engines/contract.ts";
import { SetupError } from "./errors.ts";

export type Env = Record<string, string | undefined>;
export type Backend = "auto" | EngineName;

export const engineNames = ["chrome", "chromium", "edge", "webkit", "servo"] as const;

/** The variable that names each engine's binary or library. */
export const overrideVariables: Record<EngineName, string> = {
  chrome: "BROWSER_CHROME_PATH",
  chromium: "BROWSER_CHROMIUM_PATH",
  edge: "BROWSER_EDGE_PATH",
  webkit: "BROWSER_WEBKIT_LIB",
  servo: "BROWSER_SERVO_LIB",
};

export const PROXY_SCHEMES = ["http:", "https:", "socks5:", "socks5h:"];
const DOWNLOAD_TIMEOUT_SECS_DEFAULT = 600;
const DOWNLOAD_TIMEOUT_SECS_MAX = 24 * 60 * 60;

export interface DownloadSettings {
  /** Null: the pinned version. */
  version: string | null;
  mirror: string | null;
  sha256: string | null;
  proxy: URL | null;
  timeoutMs: number;
  skip: boolean;
  cacheDir: string;
}

export function invalidSetting(name: string, wayOut: string): SetupError {
  return new SetupError("invalid_setting", `${name} has a value that cannot be used.`, { wayOut });
}

/** An address without its credentials, fit for messages and logs. */
export function redactUrl(url: URL | string): string {
  const copy = new URL(url);
  copy.username = "";
  copy.password = "";
  copy.search = "";
  return copy.href;
}

export function readSwitch(env: Env, name: string, fallback: boolean): boolean {
  const value = env[name]?.trim().toLowerCase() ?? "";
  if (value === "") return fallback;
  if (["1", "true", "yes", "on"].includes(value)) return true;
  if (["0", "false", "no", "off"].includes(value)) return false;
  throw invalidSetting(name, `Set ${name} to 1 or 0.`);
}

export function readBackend(env: Env, explicit?: string): Backend {
  const value = (explicit ?? env.BROWSER_BACKEND ?? "").trim().toLowerCase() || "auto";
  if (value === "auto" || engineNames.some((name) => name === value)) return value as Backend;
  throw invalidSetting(
    explicit === undefined ? "BROWSER_BACKEND" : "--backend",
    `Use auto or one of ${engineNames.join(", ")}; got "${value}".`,
  );
}

function readUrl(env: Env, name: string, schemes: string[]): URL | null {
  const value = env[name]?.trim();
  if (!value) return null;
  const url = URL.parse(value);
  if (!url || !schemes.includes(url.protocol) || !url.hostname)
    throw invalidSetting(
      name,
      `${name} must be a URL beginning with ${schemes.map((s) => `${s}//`).join(", ")}.`,
    );
  return url;
}

function readTimeoutMs(env: Env): number {
  const name = "BROWSER_DOWNLOAD_TIMEOUT_SECS";
  const value = env[name]?.trim();
  if (!value) return DOWNLOAD_TIMEOUT_SECS_DEFAULT * 1000;
  const seconds = Number(value);
  if (!(seconds > 0 && seconds <= DOWNLOAD_TIMEOUT_SECS_MAX))
    throw invalidSetting(
      name,
      `${name} must be a number of seconds between 0 and ${DOWNLOAD_TIMEOUT_SECS_MAX}.`,
    );
  return seconds * 1000;
}

export function defaultCacheDir(env: Env, platform: NodeJS.Platform = process.platform): string {
  if (env.BROWSER_CACHE_DIR) return env.BROWSER_CACHE_DIR;
  const home = env.HOME || env.USERPROFILE || homedir();
  if (platform === "darwin") return join(home, "Library", "Caches", "browser-tool");
  if (platform === "win32")
    return join(env.LOCALAPPDATA || join(home, "AppData", "Local"), "browser-tool", "Cache");
  return join(env.XDG_CACHE_HOME || join(home, ".cache"), "browser-tool");
}

/** Every variable about downloading, checked; the first bad one is named. */
export function readDownloadSettings(env: Env): DownloadSettings {
  const version = env.BROWSER_CHROME_VERSION?.trim() || null;
  if (version && !/^\d{2,4}\.\d{1,6}\.\d{1,6}\.\d{1,6}$/.test(version))
    throw invalidSetting(
      "BROWSER_CHROME_VERSION",
      "Use a full Chrome for Testing version of four numbers, such as 154.0.8037.92.",
    );
  const sha256 = env.BROWSER_CHROME_SHA256?.trim().toLowerCase() || null;
  if (sha256 && !/^[0-9a-f]{64}$/.test(sha256))
    throw invalidSetting("BROWSER_CHROME_SHA256", "Use the 64 hex digits of the zip file's SHA-256.");
  const mirror = readUrl(env, "BROWSER_CHROME_MIRROR", ["https:", "http:"]);
  return {
    version,
    mirror: mirror ? mirror.href.replace(/\/+$/, "") : null,
    sha256,
    proxy: readUrl(env, "BROWSER_DOWNLOAD_PROXY", PROXY_SCHEMES),
    timeoutMs: readTimeoutMs(env),
    skip: readSwitch(env, "BROWSER_SKIP_BROWSER_FETCH", false),
    cacheDir: defaultCacheDir(env),
  };
}
