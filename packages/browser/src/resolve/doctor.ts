import { existsSync, readdirSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { type DependencyScan, detectFormat, embeddedLibraries, scanDependencies } from "../bundle/index.ts";
import type { ResolvedEngine } from "../engines/contract.ts";
import { EngineLibrary } from "../engines/foreign/index.ts";
import { messageOf, SetupError } from "./errors.ts";
import { debianPackageOf, type HostFacts, readHostFacts, readOsRelease } from "./host-facts.ts";
import { isForeign, type PlanOptions, type PlanStep, planResolution } from "./plan.ts";
import { type Backend, type Env, readDownloadSettings, redactUrl } from "./settings.ts";

export type DoctorOptions = PlanOptions;

export interface MissingLibrary {
  name: string;
  neededBy: string;
  /** The Debian package that has it, where known. */
  debianPackage: string | null;
}

export interface BinaryReport {
  /** What will be started or loaded. */
  path: string;
  /** What was scanned: the program behind a wrapper script. Null when there is nothing to read. */
  scannedPath: string | null;
  version: string | null;
  libraries: number;
  missing: MissingLibrary[];
  /** Needed, not on this system, and brought along by the tool. */
  bundled: string[];
  problem: string | null;
}

export interface DoctorReport {
  /** A browser would start as far as can be told without starting it. */
  ok: boolean;
  backend: Backend;
  engine: ResolvedEngine | null;
  download: { version: string; platform: string; url: string; checksumKnown: boolean } | null;
  error: { code: string; message: string } | null;
  steps: PlanStep[];
  binary: BinaryReport | null;
  host: HostFacts;
  /** The BROWSER_* variables that are set, credentials removed. */
  settings: Record<string, string>;
  advice: string[];
}

const VERSION_TIMEOUT_MS = 5000;

/** A distribution's /usr/bin/chromium is a script; these are the programs that such scripts start. */
function programBehind(path: string): string | null {
  const real = realpathSync(path);
  if (detectFormat(real)) return real;
  const beside = dirname(real);
  const candidates = [
    join(beside, "chrome"),
    join(beside, "msedge"),
    "/usr/lib/chromium/chromium",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
    "/opt/microsoft/msedge/msedge",
  ];
  return candidates.find((candidate) => existsSync(candidate) && detectFormat(candidate) !== null) ?? null;
}

/** Chrome on Windows opens a window when asked for its version; there a directory beside it has the name. */
function versionOf(path: string): string | null {
  if (process.platform === "win32")
    return readdirSync(dirname(path)).find((name) => /^\d+\.\d+\.\d+\.\d+$/.test(name)) ?? null;
  const child = Bun.spawnSync([path, "--version"], { timeout: VERSION_TIMEOUT_MS, stderr: "ignore" });
  return /\d+(\.\d+){1,3}/.exec(child.stdout.toString())?.[0] ?? null;
}

function missingLibraries(scan: DependencyScan): MissingLibrary[] {
  const osRelease = readOsRelease();
  return scan.dependencies
    .filter(({ missing, optional }) => missing && !optional)
    .map(({ name, neededBy }) => ({ name, neededBy, debianPackage: debianPackageOf(name, osRelease) }));
}

function examine(engine: ResolvedEngine, env: Env): BinaryReport {
  const path = engine.kind === "cdp" ? engine.path : engine.libraryPath;
  const report: BinaryReport = {
    path,
    scannedPath: null,
    version: engine.kind === "cdp" ? (engine.version ?? null) : null,
    libraries: 0,
    missing: [],
    bundled: [],
    problem: null,
  };
  const brought = new Set(embeddedLibraries().map(({ name }) => name));
  try {
    report.scannedPath = programBehind(path);
    if (report.scannedPath) {
      const scan = scanDependencies(report.scannedPath, { env });
      report.libraries = scan.dependencies.length;
      const absent = missingLibraries(scan);
      report.missing = absent.filter(({ name }) => !brought.has(name));
      report.bundled = absent.map(({ name }) => name).filter((name) => brought.has(name));
    }
    // A program that lacks libraries cannot say its version; asking would only print the loader's complaint.
    const canRun = report.missing.length + report.bundled.length === 0;
    if (canRun)
      report.version ??= engine.kind === "cdp" ? versionOf(path) : new EngineLibrary(path).info.version;
    if (report.version === null && canRun)
      report.problem = `${path} does not answer --version; it may not be a browser`;
  } catch (error) {
    report.problem = messageOf(error);
  }
  return report;
}

function readableSettings(env: Env): Record<string, string> {
  const set = Object.entries(env).filter(([name, value]) => name.startsWith("BROWSER_") && value);
  return Object.fromEntries(
    set
      .sort()
      .map(([name, value]) => [
        name,
        value!.includes("://") && URL.canParse(value!) ? redactUrl(value!) : value!,
      ]),
  );
}

/** Checks variables that were not needed yet, too: a mistake in them would surface at a worse moment. */
function settingsProblem(env: Env): string | null {
  try {
    readDownloadSettings(env);
    return null;
  } catch (error) {
    return messageOf(error);
  }
}

function adviceFor(report: Omit<DoctorReport, "advice">): string[] {
  const advice: string[] = [];
  if (report.error) advice.push(report.error.message);
  const missing = report.binary?.missing ?? [];
  if (missing.length > 0) {
    const packages = [...new Set(missing.map(({ debianPackage }) => debianPackage).filter(Boolean))];
    advice.push(
      packages.length > 0
        ? `Install the missing libraries: apt install ${packages.join(" ")}`
        : `Install the missing libraries: ${missing.map(({ name }) => name).join(", ")}`,
    );
    // Chrome's zip brings the list of packages that it was built to depend on.
    const list = join(dirname(report.binary?.scannedPath ?? ""), "deb.deps");
    if (existsSync(list)) advice.push(`All packages that this browser depends on are listed in ${list}.`);
  }
  if (report.binary?.problem) advice.push(report.binary.problem);
  if (report.download && !report.download.checksumKnown)
    advice.push(
      "No checksum is known for this download; set BROWSER_CHROME_SHA256 to have it checked against yours.",
    );
  // They are about Chromium's needs, which a library does not share.
  return isForeign(report.backend) ? advice : [...advice, ...report.host.notes];
}

/** Says which browser would be used and why, what is missing, and what to do; changes nothing. */
export async function doctor(options: DoctorOptions = {}): Promise<DoctorReport> {
  const env = options.env ?? process.env;
  const { backend, steps, outcome } = await planResolution(options);
  const engine = outcome.kind === "found" ? outcome.engine : null;
  const error = outcome.kind === "failed" ? outcome.error : null;
  const build = outcome.kind === "download" ? outcome.build : null;
  const binary = engine ? examine(engine, env) : null;
  const report = {
    ok: error === null && (binary === null || (binary.missing.length === 0 && binary.problem === null)),
    backend,
    engine,
    download: build && {
      version: build.version,
      platform: build.platform,
      url: redactUrl(build.url),
      checksumKnown: build.sha256 !== null,
    },
    error: error instanceof SetupError ? { code: error.code, message: error.message } : null,
    steps,
    binary,
    host: readHostFacts(),
    settings: readableSettings(env),
  };
  const problem = error ? null : settingsProblem(env);
  return { ...report, advice: [...adviceFor(report), ...(problem ? [problem] : [])] };
}

export function renderDoctor(report: DoctorReport): string {
  const lines = [`backend: ${report.backend}`];
  for (const { step, outcome, detail } of report.steps)
    lines.push(`  ${step.padEnd(9)} ${outcome.padEnd(8)} ${detail}`);
  const { engine, download, binary, host } = report;
  if (engine?.kind === "cdp") lines.push(`browser: ${engine.name} at ${engine.path} (${engine.source})`);
  else if (engine) lines.push(`engine: ${engine.name} in ${engine.libraryPath} (${engine.source})`);
  else if (download) lines.push(`browser: would be downloaded from ${download.url}`);
  else lines.push(`browser: none (${report.error?.code})`);
  if (binary) {
    lines.push(`version: ${binary.version ?? "unknown"}`);
    const scanned = binary.scannedPath
      ? `${binary.libraries} of ${binary.scannedPath}`
      : "not a binary, not scanned";
    lines.push(`libraries: ${scanned}, ${binary.missing.length} missing`);
    if (binary.bundled.length > 0) lines.push(`  brought by the tool: ${binary.bundled.join(", ")}`);
    for (const { name, neededBy, debianPackage } of binary.missing)
      lines.push(`  ${name} needed by ${neededBy}${debianPackage ? ` (package ${debianPackage})` : ""}`);
  }
  const system = `${host.platform} ${host.arch}${host.libc ? ` ${host.libc}` : ""}`;
  lines.push(`system: ${system}${isForeign(report.backend) ? "" : `, sandbox: ${host.sandbox}`}`);
  for (const [name, value] of Object.entries(report.settings)) lines.push(`${name}=${value}`);
  for (const line of report.advice) lines.push(`- ${line}`);
  lines.push(report.ok ? "ok" : "not ok");
  return lines.join("\n");
}
