/** From the settings to a browser. Kept light: this much is loaded before every start. */
import type { ResolvedEngine } from "../engines/contract.ts";
import type { Progress } from "./download.ts";
import { type PlanOptions, planResolution } from "./plan.ts";

export interface ResolveOptions extends PlanOptions {
  onProgress?: (progress: Progress) => void;
}

/** The browser to use: override, baked, installed, or downloaded now. Throws a SetupError that says the way out. */
export async function resolveEngine(options: ResolveOptions = {}): Promise<ResolvedEngine> {
  const { outcome } = await planResolution(options);
  if (outcome.kind === "found") return outcome.engine;
  if (outcome.kind === "failed") throw outcome.error;
  const { build, settings } = outcome;
  // Hardly anyone needs a download, and what it takes would double what has to be loaded at every start.
  const { installChrome } = await import("./install.ts");
  const { path, source } = await installChrome(build, { ...settings, onProgress: options.onProgress });
  return { kind: "cdp", name: "chrome", path, source, version: build.version };
}
