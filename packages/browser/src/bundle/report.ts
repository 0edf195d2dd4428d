import { copyFileSync, existsSync, mkdirSync, renameSync, statSync } from "node:fs";
import { basename, delimiter, dirname, join } from "node:path";
import { messageOf, SetupError } from "../resolve/errors.ts";
import { type BinaryFormat, type BinaryInfo, readBinary } from "./binary.ts";
import { type BundleEntry, hostTargetOs, readBundleEntries, type TargetOs } from "./manifest.ts";
import { scanDependencies } from "./scan.ts";

export interface BundledLibrary {
  path: string;
  /** The file name under which it ships: its soname where it has one, because that is what is asked for. */
  name: string;
  origin: string;
  optional: boolean;
  /** `found`: it is there, nothing was copied; `skipped`: meant for another system. */
  status: "found" | "bundled" | "missing" | "skipped";
  bytes: number;
  destination?: string;
  reason?: string;
}

export interface BundleDependency {
  name: string;
  path: string | null;
  /** `system`: expected on the machine where the tool will run. */
  status: "bundled" | "system" | "missing";
  neededBy: string;
  bytes: number;
}

export interface BundleReport {
  targetOs: TargetOs;
  libraries: BundledLibrary[];
  dependencies: BundleDependency[];
  /** `found` counts every listed library that exists, `missing` libraries and dependencies that do not. */
  totals: { found: number; missing: number; bundled: number; bytes: number };
  /** Nothing that is required is missing. */
  ok: boolean;
}

export interface BundleOptions {
  /** The process's own when not given. */
  env?: Record<string, string | undefined>;
  /** Where to copy the libraries; without it nothing is written. */
  outDir?: string;
  targetOs?: TargetOs;
  /** Processor that the libraries have to be for, as the binary formats name it; any when not given. */
  machine?: string;
  /** A program (the browser) whose dependencies are to be met by the bundle and the system. */
  binary?: string;
}

const formatOf: Record<TargetOs, BinaryFormat> = { linux: "elf", macos: "macho", windows: "pe" };

function inspect(entry: BundleEntry, targetOs: TargetOs, machine?: string): BundledLibrary {
  const { path, origin, optional } = entry;
  const library = { path, name: basename(path), origin, optional, bytes: 0 };
  if (entry.targetOs && entry.targetOs !== targetOs)
    return { ...library, status: "skipped", reason: `only for ${entry.targetOs}` };
  if (!existsSync(path)) return { ...library, status: "missing", reason: "no such file" };
  let info: BinaryInfo;
  try {
    info = readBinary(path, { machine });
  } catch (error) {
    return { ...library, status: "missing", reason: messageOf(error) };
  }
  if (info.format !== formatOf[targetOs])
    return {
      ...library,
      status: "missing",
      reason: `is ${info.format}, ${targetOs} needs ${formatOf[targetOs]}`,
    };
  if (machine && info.machine !== machine)
    return { ...library, status: "missing", reason: `is for ${info.machine}, not for ${machine}` };
  const name = info.format === "elf" && info.soname ? basename(info.soname) : library.name;
  return { ...library, name, status: "found", bytes: statSync(path).size };
}

/** A reader never sees half a library: the copy gets its name when it is whole. */
function copyInto(outDir: string, library: BundledLibrary): BundledLibrary {
  const destination = join(outDir, library.name);
  const temporary = `${destination}.${process.pid}.tmp`;
  mkdirSync(outDir, { recursive: true });
  copyFileSync(library.path, temporary);
  renameSync(temporary, destination);
  return { ...library, status: "bundled", destination };
}

function refuseClashes(libraries: BundledLibrary[]): void {
  const taken = new Map<string, string>();
  for (const { name, path, status } of libraries) {
    if (status !== "found") continue;
    const other = taken.get(name);
    if (other && other !== path)
      throw new SetupError("bundle_invalid", `${other} and ${path} would both ship as ${name}.`, {
        wayOut: "Keep one of them in BROWSER_BUNDLE_LIBS or BROWSER_BUNDLE_MANIFEST.",
      });
    taken.set(name, path);
  }
}

interface Shipped {
  directories: string[];
  /** Of the files that ship; what lies beside them does not. */
  names: ReadonlySet<string>;
}

function scanAll(binaries: string[], shipped: Shipped, env: BundleOptions["env"]): BundleDependency[] {
  const found = new Map<string, BundleDependency>();
  for (const binary of binaries) {
    for (const dependency of scanDependencies(binary, { env, extraDirectories: shipped.directories })
      .dependencies) {
      if (found.has(dependency.name) || dependency.via === "interpreter") continue;
      if (dependency.missing && dependency.optional) continue;
      const { name, path, neededBy, bytes, missing } = dependency;
      const inBundle =
        path !== null && shipped.directories.includes(dirname(path)) && shipped.names.has(basename(path));
      const status = missing ? "missing" : inBundle ? "bundled" : "system";
      found.set(name, { name, path, status, neededBy, bytes });
    }
  }
  return [...found.values()];
}

/** Copies the listed libraries (given an `outDir`) and says what they and the browser still need. */
export function bundleLibraries(options: BundleOptions = {}): BundleReport {
  const targetOs = options.targetOs ?? hostTargetOs();
  const { outDir, env = process.env } = options;
  let libraries = readBundleEntries(env).map((entry) => inspect(entry, targetOs, options.machine));
  refuseClashes(libraries);
  if (outDir)
    libraries = libraries.map((library) =>
      library.status === "found" ? copyInto(outDir, library) : library,
    );
  const present = libraries.filter(({ status }) => status === "found" || status === "bundled");
  const shipped = {
    directories: outDir ? [outDir] : [...new Set(present.map(({ path }) => dirname(path)))],
    names: new Set(present.map(({ name }) => name)),
  };
  const binaries = present.map(({ destination, path }) => destination ?? path);
  if (options.binary) binaries.unshift(options.binary);
  const dependencies = scanAll(binaries, shipped, env);
  const missingLibraries = libraries.filter(({ status }) => status === "missing");
  const missingDependencies = dependencies.filter(({ status }) => status === "missing");
  return {
    targetOs,
    libraries,
    dependencies,
    totals: {
      found: present.length,
      missing: missingLibraries.length + missingDependencies.length,
      bundled: libraries.filter(({ status }) => status === "bundled").length,
      bytes: present.reduce((sum, { bytes }) => sum + bytes, 0),
    },
    ok: missingLibraries.every(({ optional }) => optional) && missingDependencies.length === 0,
  };
}

/** What to add to the browser's environment so that it finds libraries shipped in `directory`. */
export function bundledLibraryEnv(
  directory: string,
  env: Record<string, string | undefined>,
  platform: NodeJS.Platform = process.platform,
): Record<string, string> {
  if (!existsSync(directory)) return {};
  const name =
    platform === "win32" ? "PATH" : platform === "darwin" ? "DYLD_LIBRARY_PATH" : "LD_LIBRARY_PATH";
  return { [name]: env[name] ? `${directory}${delimiter}${env[name]}` : directory };
}
