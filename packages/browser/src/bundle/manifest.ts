import { readFileSync } from "node:fs";
import { delimiter, dirname, isAbsolute, resolve } from "node:path";
import { messageOf, SetupError } from "../resolve/errors.ts";

export type TargetOs = "linux" | "macos" | "windows";

/** One library that is to be shipped, as the settings name it. */
export interface BundleEntry {
  path: string;
  optional: boolean;
  /** Null: for every system. */
  targetOs: TargetOs | null;
  /** The setting that asked for it, for messages. */
  origin: string;
}

const ENTRIES_MAX = 10_000;
const KEYS = new Set(["path", "optional", "target_os"]);
const targetNames: Record<string, TargetOs> = {
  linux: "linux",
  macos: "macos",
  darwin: "macos",
  windows: "windows",
  win32: "windows",
};

export function hostTargetOs(platform: NodeJS.Platform = process.platform): TargetOs {
  return targetNames[platform] ?? "linux";
}

function invalid(what: string, cause?: unknown): SetupError {
  return new SetupError("bundle_invalid", what, {
    wayOut:
      "BROWSER_BUNDLE_MANIFEST must name a TOML file of [[lib]] tables, each with path (string) and, where wanted, optional (true or false) and target_os (linux, macos or windows).",
    cause,
  });
}

function readEntry(table: unknown, index: number, manifest: string): BundleEntry {
  const where = `lib ${index + 1} of ${manifest}`;
  if (typeof table !== "object" || table === null || Array.isArray(table))
    throw invalid(`${where} is not a table.`);
  const fields = table as Record<string, unknown>;
  const unknown = Object.keys(fields).find((key) => !KEYS.has(key));
  if (unknown) throw invalid(`${where} has an unknown field "${unknown}".`);
  const { path, optional = false, target_os: target } = fields;
  if (typeof path !== "string" || path === "") throw invalid(`${where} has no path.`);
  if (typeof optional !== "boolean") throw invalid(`${where}: optional must be true or false.`);
  if (target !== undefined && (typeof target !== "string" || !Object.hasOwn(targetNames, target)))
    throw invalid(`${where}: target_os "${String(target)}" is unknown.`);
  return {
    path: isAbsolute(path) ? path : resolve(dirname(manifest), path),
    optional,
    targetOs: target === undefined ? null : targetNames[target as string]!,
    origin: `BROWSER_BUNDLE_MANIFEST lib ${index + 1}`,
  };
}

function readManifest(manifest: string): BundleEntry[] {
  let parsed: unknown;
  try {
    parsed = Bun.TOML.parse(readFileSync(manifest, "utf8"));
  } catch (error) {
    throw invalid(`The bundle manifest ${manifest} cannot be read: ${messageOf(error)}.`, error);
  }
  const { lib = [], ...others } = parsed as Record<string, unknown>;
  const unknown = Object.keys(others)[0];
  if (unknown) throw invalid(`${manifest} has an unknown entry "${unknown}".`);
  if (!Array.isArray(lib)) throw invalid(`lib in ${manifest} is not a list of [[lib]] tables.`);
  if (lib.length > ENTRIES_MAX) throw invalid(`${manifest} lists more than ${ENTRIES_MAX} libraries.`);
  return lib.map((table, index) => readEntry(table, index, manifest));
}

/** Everything that BROWSER_BUNDLE_LIBS and BROWSER_BUNDLE_MANIFEST ask to ship, in that order. */
export function readBundleEntries(env: Record<string, string | undefined>): BundleEntry[] {
  const listed = (env.BROWSER_BUNDLE_LIBS ?? "")
    .split(delimiter)
    .filter(Boolean)
    .map((path) => ({ path: resolve(path), optional: false, targetOs: null, origin: "BROWSER_BUNDLE_LIBS" }));
  const manifest = env.BROWSER_BUNDLE_MANIFEST;
  return manifest ? [...listed, ...readManifest(resolve(manifest))] : listed;
}
