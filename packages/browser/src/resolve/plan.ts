import type { EngineName, ResolvedEngine } from "../engines/contract.ts";
import { type ChromeBuild, selectBuild } from "./chrome-build.ts";
import { SetupError } from "./errors.ts";
import { type Features, readFeatures } from "./features.ts";
import {
  type Backend,
  type DownloadSettings,
  type Env,
  engineNames,
  overrideVariables,
  readBackend,
  readDownloadSettings,
} from "./settings.ts";
import { browserCandidates, type Host, libraryCandidates, realHost } from "./system.ts";

export interface PlanOptions {
  env?: Env;
  /** Wins over BROWSER_BACKEND. */
  backend?: string;
  host?: Host;
  features?: Features;
}

/** One of the four steps, and what came of it. */
export interface PlanStep {
  step: "override" | "baked" | "system" | "download";
  outcome: "used" | "nothing" | "off" | "failed";
  detail: string;
}

export interface Plan {
  backend: Backend;
  steps: PlanStep[];
  outcome:
    | { kind: "found"; engine: ResolvedEngine }
    | { kind: "download"; build: ChromeBuild; settings: DownloadSettings }
    | { kind: "failed"; error: SetupError };
}

type CdpName = Extract<ResolvedEngine, { kind: "cdp" }>["name"];
type Source = "override" | "system";

export function isForeign(name: Backend): name is "webkit" | "servo" {
  return name === "webkit" || name === "servo";
}

function engineAt(name: EngineName, path: string, source: Source): ResolvedEngine {
  return isForeign(name)
    ? { kind: "foreign", name, libraryPath: path, source }
    : { kind: "cdp", name, path, source };
}

interface Context {
  env: Env;
  host: Host;
  features: Features;
  backend: Backend;
  steps: PlanStep[];
}

function tryOverride({ env, host, features, backend, steps }: Context): ResolvedEngine | null {
  const wanted = backend === "auto" ? engineNames : [backend];
  for (const name of wanted) {
    const variable = overrideVariables[name];
    const path = env[variable]?.trim();
    if (!path) continue;
    if (isForeign(name) && !features.foreignEngine) continue;
    const why = host.whyUnusable(path, isForeign(name) ? "load" : "execute");
    if (why) {
      steps.push({ step: "override", outcome: "failed", detail: `${variable}: ${path} ${why}` });
      throw new SetupError("override_unusable", `${variable} names ${path}, which ${why}.`, {
        wayOut: `Correct ${variable}, or remove it to let the tool look for itself.`,
      });
    }
    steps.push({ step: "override", outcome: "used", detail: `${variable}=${path}` });
    return engineAt(name, path, "override");
  }
  const names = wanted.map((name) => overrideVariables[name]).join(", ");
  steps.push({ step: "override", outcome: "nothing", detail: `${names} not set` });
  return null;
}

/** The pinned build is Chrome for Testing, which stands in for Chrome and Chromium, never for Edge. */
function takesPinnedBuild(backend: Backend): boolean {
  return backend === "auto" || backend === "chrome" || backend === "chromium";
}

function tryBaked({ host, features, backend, steps }: Context): ResolvedEngine | null {
  const step = "baked";
  if (!features.autoFetch) steps.push({ step, outcome: "off", detail: "built without auto-fetch" });
  else if (!takesPinnedBuild(backend)) steps.push({ step, outcome: "off", detail: `not for ${backend}` });
  else if (!features.bakedPath)
    steps.push({ step, outcome: "nothing", detail: "the build skipped its download" });
  else {
    const why = host.whyUnusable(features.bakedPath, "execute");
    steps.push({
      step,
      outcome: why ? "nothing" : "used",
      detail: `${features.bakedPath}${why ? ` ${why}` : ""}`,
    });
    if (!why)
      return {
        kind: "cdp",
        name: "chrome",
        path: features.bakedPath,
        source: "baked",
        ...(features.bakedVersion ? { version: features.bakedVersion } : {}),
      };
  }
  return null;
}

function trySystem({ env, host, backend, steps }: Context): ResolvedEngine | null {
  // Foreign libraries are only taken when asked for by name: auto means a browser that speaks CDP.
  const names: EngineName[] = backend === "auto" ? ["chrome", "chromium", "edge"] : [backend];
  let tried = 0;
  for (const name of names) {
    const candidates = isForeign(name)
      ? libraryCandidates(name, env, host)
      : browserCandidates(name as CdpName, env, host);
    for (const path of candidates) {
      tried++;
      if (host.whyUnusable(path, isForeign(name) ? "load" : "execute")) continue;
      steps.push({ step: "system", outcome: "used", detail: `${name} at ${path}` });
      return engineAt(name, path, "system");
    }
  }
  steps.push({
    step: "system",
    outcome: "nothing",
    detail: `no ${names.join(", ")} on PATH or in well-known places (${tried} looked at)`,
  });
  return null;
}

function nothingFound(
  backend: Backend,
  why: string,
  code: "browser_not_found" | "download_skipped",
): SetupError {
  const variable = overrideVariables[backend === "auto" ? "chrome" : backend];
  const what = backend === "auto" ? "No browser was found" : `No ${backend} was found`;
  return new SetupError(code, `${what}, and ${why}.`, {
    wayOut: `Install one (Debian and Ubuntu: apt install chromium) or set ${variable} to its path.`,
  });
}

async function tryDownload(context: Context): Promise<Plan["outcome"]> {
  const { env, host, features, backend, steps } = context;
  const off = (detail: string, error: SetupError): Plan["outcome"] => {
    steps.push({ step: "download", outcome: "off", detail });
    return { kind: "failed", error };
  };
  if (isForeign(backend)) {
    const error = new SetupError("engine_library_missing", `No ${backend} engine library was found.`, {
      wayOut: `Install the vendor's library and set ${overrideVariables[backend]} to its path.`,
    });
    return off("engine libraries are not downloaded", error);
  }
  if (!takesPinnedBuild(backend)) {
    const error = nothingFound(backend, "there is no download for it", "browser_not_found");
    return off(`there is no download for ${backend}`, error);
  }
  if (!features.runtimeFetch) {
    const error = nothingFound(backend, "runtime-fetch is off", "browser_not_found");
    return off("built without runtime-fetch", error);
  }
  if (host.libc === "musl") {
    const error = new SetupError("platform_unsupported", "Chrome for Testing does not run with musl.", {
      wayOut: "Install Chromium from the system's packages (Alpine: apk add chromium).",
    });
    return off("Chrome for Testing needs glibc", error);
  }
  const settings = readDownloadSettings(env);
  const build = selectBuild(settings, { os: host.platform, arch: host.arch });
  const { findInstalled } = await import("./install.ts");
  const installed = await findInstalled(build, settings.cacheDir);
  if (installed) {
    steps.push({ step: "download", outcome: "used", detail: `in the cache: ${installed.path}` });
    const { version } = build;
    return {
      kind: "found",
      engine: { kind: "cdp", name: "chrome", path: installed.path, source: "cache", version },
    };
  }
  if (settings.skip) {
    const why = "BROWSER_SKIP_BROWSER_FETCH forbids downloading one";
    return off("BROWSER_SKIP_BROWSER_FETCH is set", nothingFound(backend, why, "download_skipped"));
  }
  const known = build.sha256 ? "with a known checksum" : "without a known checksum";
  const detail = `Chrome for Testing ${build.version} for ${build.platform}, ${known}`;
  steps.push({ step: "download", outcome: "used", detail });
  return { kind: "download", build, settings };
}

/** Walks the four steps without downloading anything: what would be used, and why. */
export async function planResolution(options: PlanOptions = {}): Promise<Plan> {
  const env = options.env ?? process.env;
  const steps: PlanStep[] = [];
  let backend: Backend = "auto";
  try {
    backend = readBackend(env, options.backend);
    const features = options.features ?? readFeatures(env);
    const context: Context = { env, host: options.host ?? realHost(env), features, backend, steps };
    if (isForeign(backend) && !features.foreignEngine)
      throw new SetupError("feature_disabled", `The ${backend} backend needs the foreign-engine feature.`, {
        wayOut: "Use a build that has it, or set BROWSER_BACKEND to auto.",
      });
    const engine = tryOverride(context) ?? tryBaked(context) ?? trySystem(context);
    const outcome: Plan["outcome"] = engine ? { kind: "found", engine } : await tryDownload(context);
    return { backend, steps, outcome };
  } catch (error) {
    if (error instanceof SetupError) return { backend, steps, outcome: { kind: "failed", error } };
    throw error;
  }
}
