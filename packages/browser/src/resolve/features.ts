import { type Env, readSwitch } from "./settings.ts";

// Replaced by `bun build --compile --define NAME=value`; from source they do not exist, hence the typeof tests.
declare const BROWSER_FEATURE_AUTO_FETCH: boolean | undefined;
declare const BROWSER_FEATURE_RUNTIME_FETCH: boolean | undefined;
declare const BROWSER_FEATURE_FOREIGN_ENGINE: boolean | undefined;
declare const BROWSER_BAKED_CHROME: string | undefined;
declare const BROWSER_BAKED_CHROME_VERSION: string | undefined;

export interface Features {
  /** A browser was fetched when the tool was built, and its path is known. */
  autoFetch: boolean;
  runtimeFetch: boolean;
  foreignEngine: boolean;
  bakedPath: string | null;
  bakedVersion: string | null;
}

/** What the build decided; run from source, environment variables of the same names decide instead. */
export function readFeatures(env: Env): Features {
  const auto = typeof BROWSER_FEATURE_AUTO_FETCH === "boolean" ? BROWSER_FEATURE_AUTO_FETCH : null;
  const runtime = typeof BROWSER_FEATURE_RUNTIME_FETCH === "boolean" ? BROWSER_FEATURE_RUNTIME_FETCH : null;
  const foreign = typeof BROWSER_FEATURE_FOREIGN_ENGINE === "boolean" ? BROWSER_FEATURE_FOREIGN_ENGINE : null;
  const path = typeof BROWSER_BAKED_CHROME === "string" ? BROWSER_BAKED_CHROME : env.BROWSER_BAKED_CHROME;
  const version =
    typeof BROWSER_BAKED_CHROME_VERSION === "string"
      ? BROWSER_BAKED_CHROME_VERSION
      : env.BROWSER_BAKED_CHROME_VERSION;
  const autoFetch = auto ?? readSwitch(env, "BROWSER_FEATURE_AUTO_FETCH", false);
  return {
    autoFetch,
    runtimeFetch: runtime ?? readSwitch(env, "BROWSER_FEATURE_RUNTIME_FETCH", true),
    foreignEngine: foreign ?? readSwitch(env, "BROWSER_FEATURE_FOREIGN_ENGINE", true),
    bakedPath: (autoFetch && path) || null,
    bakedVersion: (autoFetch && version) || null,
  };
}
