import { selectBuild } from "./chrome-build.ts";
import type { Progress } from "./download.ts";
import { installChrome } from "./install.ts";
import { type Env, readDownloadSettings } from "./settings.ts";

export interface BuildFetchOptions {
  env?: Env;
  /** The system that the tool is built for. */
  target?: { os: string; arch: string };
  /** Where the browser is to stay; the shared cache when not given. */
  outDir?: string;
  onProgress?: (progress: Progress) => void;
}

export interface BuildFetch {
  /** BROWSER_SKIP_BROWSER_FETCH was set: nothing was fetched and no path is baked. */
  skipped: boolean;
  path: string | null;
  version: string | null;
  /** The zip was compared with a checksum known beforehand. */
  verified: boolean;
  /** For the `define` of `Bun.build`: the baked path, and the feature itself. */
  defines: Record<string, string>;
}

/** The `auto-fetch` feature: fetches the pinned browser while the tool is built, and bakes its path in. */
export async function fetchForBuild(options: BuildFetchOptions = {}): Promise<BuildFetch> {
  const env = options.env ?? process.env;
  const settings = readDownloadSettings(env);
  const feature = { BROWSER_FEATURE_AUTO_FETCH: "true" };
  if (settings.skip)
    return {
      skipped: true,
      path: null,
      version: null,
      verified: false,
      defines: { ...feature, BROWSER_BAKED_CHROME: '""', BROWSER_BAKED_CHROME_VERSION: '""' },
    };
  const build = selectBuild(settings, options.target ?? { os: process.platform, arch: process.arch });
  const cacheDir = options.outDir ?? settings.cacheDir;
  const { path, verified } = await installChrome(build, {
    ...settings,
    cacheDir,
    onProgress: options.onProgress,
  });
  return {
    skipped: false,
    path,
    version: build.version,
    verified,
    defines: {
      ...feature,
      BROWSER_BAKED_CHROME: JSON.stringify(path),
      BROWSER_BAKED_CHROME_VERSION: JSON.stringify(build.version),
    },
  };
}
