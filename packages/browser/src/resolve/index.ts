import type { ResolvedEngine } from "../engines/contract.ts";
import type { Progress } from "./download.ts";
import { installChrome } from "./install.ts";
import { type PlanOptions, planResolution } from "./plan.ts";

export { type ChromeBuild, PINNED_VERSION } from "./chrome-build.ts";
export { type DoctorOptions, type DoctorReport, doctor, renderDoctor } from "./doctor.ts";
export type { Progress } from "./download.ts";
export { SetupError, type SetupErrorCode } from "./errors.ts";
export { type Features, readFeatures } from "./features.ts";
export { type BuildFetch, fetchForBuild } from "./fetch-for-build.ts";
export { type Plan, type PlanOptions, type PlanStep, planResolution } from "./plan.ts";
export { type Backend, type Env, engineNames, overrideVariables, redactUrl } from "./settings.ts";
export type { Host } from "./system.ts";

export interface ResolveOptions extends PlanOptions {
  onProgress?: (progress: Progress) => void;
}

/** The browser to use: override, baked, installed, or downloaded now. Throws a SetupError that says the way out. */
export async function resolveEngine(options: ResolveOptions = {}): Promise<ResolvedEngine> {
  const { outcome } = await planResolution(options);
  if (outcome.kind === "found") return outcome.engine;
  if (outcome.kind === "failed") throw outcome.error;
  const { build, settings } = outcome;
  const { cacheDir, proxy, timeoutMs } = settings;
  const installed = await installChrome(build, {
    cacheDir,
    proxy,
    timeoutMs,
    onProgress: options.onProgress,
  });
  return {
    kind: "cdp",
    name: "chrome",
    path: installed.path,
    source: installed.source,
    version: build.version,
  };
}
