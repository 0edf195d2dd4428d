import { SetupError } from "./errors.ts";
import type { DownloadSettings } from "./settings.ts";

/** The Chrome for Testing build that this version of the tool is tried with. */
export const PINNED_VERSION = "154.0.8037.92";
export const DEFAULT_BASE_URL = "https://storage.googleapis.com/chrome-for-testing-public";
/** The first build with a Linux arm64 zip. */
const LINUX_ARM64_SINCE = "153.0.8001.0";

export type ChromePlatform = "linux64" | "linux-arm64" | "mac-arm64" | "mac-x64" | "win32" | "win64";

/**
 * SHA-256 of the pinned zips. The publisher gives out no checksums, so a value stands here only when at least
 * two independent public records of the download agree on it; null means that none is known to that standard,
 * and the download is then checked by its length, its zip checksums and the TLS connection alone.
 */
const pinnedSha256: Record<ChromePlatform, string | null> = {
  linux64: "ff43322f335e436b2f4dcdfeeec5db032299e335a7e8c1c618b326e100ce8732",
  "linux-arm64": "c0af361aab66b24c72e36a4326dce4d7edf4bc23f9aede8af988c2cb6ea3fec0",
  "mac-arm64": "b62e904b6571c5ff5108ed7812cf93ac6d1c4027f10ae47ac34d8e229ed88001",
  "mac-x64": null,
  win32: null,
  win64: "b897ef3601c947ac0620c784556dec719ac602b0159ce105927acf645ee0f598",
};

const platforms: Record<string, ChromePlatform> = {
  "linux/x64": "linux64",
  "linux/arm64": "linux-arm64",
  "darwin/arm64": "mac-arm64",
  "darwin/x64": "mac-x64",
  "win32/x64": "win64",
  "win32/ia32": "win32",
  // Windows on Arm runs x64 programs.
  "win32/arm64": "win64",
};

/** One downloadable build: where it is, how it is checked, and what to start inside it. */
export interface ChromeBuild {
  version: string;
  platform: ChromePlatform;
  url: string;
  sha256: string | null;
  /** Path of the executable inside the zip. */
  executable: string;
}

function compareVersions(a: string, b: string): number {
  const left = a.split(".").map(Number);
  const right = b.split(".").map(Number);
  for (let index = 0; index < 4; index++) {
    const difference = (left[index] ?? 0) - (right[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

function executableIn(platform: ChromePlatform): string {
  const root = `chrome-${platform}`;
  if (platform.startsWith("mac"))
    return `${root}/Google Chrome for Testing.app/Contents/MacOS/Google Chrome for Testing`;
  return platform.startsWith("win") ? `${root}/chrome.exe` : `${root}/chrome`;
}

interface HostTarget {
  os: string;
  arch: string;
}

export function selectBuild(
  settings: Pick<DownloadSettings, "version" | "mirror" | "sha256">,
  { os, arch }: HostTarget,
): ChromeBuild {
  const platform = platforms[`${os}/${arch}`];
  if (!platform)
    throw new SetupError(
      "platform_unsupported",
      `There is no Chrome for Testing build for ${os} on ${arch}.`,
      {
        wayOut:
          "Install Chromium from the system's packages, or set BROWSER_CHROMIUM_PATH to a browser that you have.",
      },
    );
  const version = settings.version ?? PINNED_VERSION;
  if (platform === "linux-arm64" && compareVersions(version, LINUX_ARM64_SINCE) < 0)
    throw new SetupError("platform_unsupported", `Chrome for Testing ${version} has no Linux arm64 build.`, {
      wayOut: `Set BROWSER_CHROME_VERSION to ${LINUX_ARM64_SINCE} or newer, or remove it to use ${PINNED_VERSION}.`,
    });
  const known = version === PINNED_VERSION ? pinnedSha256[platform] : null;
  return {
    version,
    platform,
    url: `${settings.mirror ?? DEFAULT_BASE_URL}/${version}/${platform}/chrome-${platform}.zip`,
    sha256: settings.sha256 ?? known,
    executable: executableIn(platform),
  };
}
