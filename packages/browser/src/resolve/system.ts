import { accessSync, closeSync, constants, openSync, readSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { posix, win32 } from "node:path";
import type { EngineName } from "../engines/contract.ts";
import { messageOf } from "./errors.ts";
import { libcOf } from "./host-facts.ts";
import type { Env } from "./settings.ts";

/** What of the machine resolution looks at; tests stand in for other machines. */
export interface Host {
  platform: NodeJS.Platform;
  arch: string;
  homeDir: string;
  libc: "glibc" | "musl" | null;
  /** Null when the file can be started (or loaded), otherwise why not. */
  whyUnusable(path: string, use: "execute" | "load"): string | null;
}

const STUB_BYTES_MAX = 4096;

/** Ubuntu's /usr/bin/chromium-browser is a script that only says to install the snap. */
function isSnapStub(path: string): boolean {
  if (statSync(path).size > STUB_BYTES_MAX) return false;
  const fd = openSync(path, "r");
  try {
    const head = Buffer.alloc(STUB_BYTES_MAX);
    const text = head.toString("utf8", 0, readSync(fd, head, 0, STUB_BYTES_MAX, 0));
    return text.startsWith("#!") && text.includes("snap install chromium");
  } finally {
    closeSync(fd);
  }
}

function whyUnusable(path: string, use: "execute" | "load"): string | null {
  try {
    if (!statSync(path).isFile()) return "is not a file";
    accessSync(path, use === "execute" ? constants.X_OK : constants.R_OK);
    return use === "execute" && isSnapStub(path) ? "only asks to install the snap" : null;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ENOTDIR") return "does not exist";
    if (code === "EACCES") return use === "execute" ? "is not executable" : "is not readable";
    return messageOf(error);
  }
}

export function realHost(env: Env): Host {
  return {
    platform: process.platform,
    arch: process.arch,
    homeDir: env.HOME || env.USERPROFILE || homedir(),
    libc: libcOf(process.platform),
    whyUnusable,
  };
}

type CdpName = Extract<EngineName, "chrome" | "chromium" | "edge">;
type ForeignName = Exclude<EngineName, CdpName>;

const linuxNames: Record<CdpName, string[]> = {
  chrome: ["google-chrome-stable", "google-chrome", "chrome"],
  chromium: ["chromium", "chromium-browser"],
  edge: ["microsoft-edge-stable", "microsoft-edge"],
};
const linuxPlaces: Record<CdpName, string[]> = {
  chrome: ["/usr/bin/google-chrome-stable", "/usr/bin/google-chrome", "/opt/google/chrome/chrome"],
  chromium: [
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/local/bin/chromium",
    "/snap/bin/chromium",
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
  ],
  edge: ["/usr/bin/microsoft-edge-stable", "/usr/bin/microsoft-edge", "/opt/microsoft/msedge/msedge"],
};
const macApps: Record<CdpName, string[]> = {
  chrome: ["Google Chrome", "Google Chrome for Testing", "Google Chrome Beta", "Google Chrome Canary"],
  chromium: ["Chromium"],
  edge: ["Microsoft Edge"],
};
const windowsPlaces: Record<CdpName, string[]> = {
  chrome: ["Google\\Chrome\\Application\\chrome.exe", "Google\\Chrome for Testing\\Application\\chrome.exe"],
  chromium: ["Chromium\\Application\\chrome.exe"],
  edge: ["Microsoft\\Edge\\Application\\msedge.exe"],
};
const windowsNames: Record<CdpName, string[]> = {
  chrome: ["chrome.exe"],
  chromium: ["chromium.exe"],
  edge: ["msedge.exe"],
};

function onPath(env: Env, names: string[], windows: boolean): string[] {
  const list = (windows ? (env.Path ?? env.PATH) : env.PATH) ?? "";
  const path = windows ? win32 : posix;
  return list
    .split(path.delimiter)
    .filter((directory) => path.isAbsolute(directory))
    .flatMap((directory) => names.map((name) => path.join(directory, name)));
}

/** Where an installed browser may be: PATH first, then where installers put it. */
export function browserCandidates(name: CdpName, env: Env, host: Host): string[] {
  if (host.platform === "darwin") {
    const roots = ["/Applications", posix.join(host.homeDir, "Applications")];
    return [
      ...onPath(env, linuxNames[name], false),
      ...roots.flatMap((root) => macApps[name].map((app) => `${root}/${app}.app/Contents/MacOS/${app}`)),
    ];
  }
  if (host.platform === "win32") {
    const roots = [env.ProgramFiles, env["ProgramFiles(x86)"], env.LOCALAPPDATA].filter(
      (root): root is string => Boolean(root),
    );
    return [
      ...onPath(env, windowsNames[name], true),
      ...roots.flatMap((root) => windowsPlaces[name].map((place) => win32.join(root, place))),
    ];
  }
  return [...onPath(env, linuxNames[name], false), ...linuxPlaces[name]];
}

/** Where a vendor's engine library may be installed. */
export function libraryCandidates(name: ForeignName, env: Env, host: Host): string[] {
  if (host.platform === "win32") {
    const roots = [env.ProgramFiles, env.LOCALAPPDATA].filter((root): root is string => Boolean(root));
    return roots.map((root) => win32.join(root, "browser-engines", `browser_engine_${name}.dll`));
  }
  const file = `libbrowser_engine_${name}.${host.platform === "darwin" ? "dylib" : "so"}`;
  const roots = [posix.join(host.homeDir, ".local", "lib"), "/usr/local/lib", "/usr/lib"];
  return roots.map((root) => posix.join(root, "browser-engines", file));
}
