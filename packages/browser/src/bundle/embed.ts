/** At build time: the libraries of BROWSER_BUNDLE_LIBS and BROWSER_BUNDLE_MANIFEST as files to embed. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SetupError } from "../resolve/errors.ts";
import { type EmbeddedLibrary, embeddedFileName } from "./embedded.ts";
import type { TargetOs } from "./manifest.ts";
import { type BundledLibrary, type BundleReport, bundleLibraries } from "./report.ts";

const BUNDLE_BYTES_MAX = 512 * 1024 * 1024;

export interface EmbedOptions {
  env: Record<string, string | undefined>;
  /** Where the files are put; the build reads them from there. */
  stagingDir: string;
  targetOs: TargetOs;
  /** As the binary formats name it: x86_64 or aarch64. */
  machine: string;
}

export interface Embed {
  report: BundleReport;
  /** To be given to `bun build --compile` beside the program. */
  files: string[];
  /** For its `--define`. */
  defines: Record<string, string>;
}

function refuse(what: string): SetupError {
  return new SetupError("bundle_invalid", what, {
    wayOut: "Correct BROWSER_BUNDLE_LIBS or BROWSER_BUNDLE_MANIFEST; mark what may be absent as optional.",
  });
}

function checkLibrary({ name, path, status, optional, reason }: BundledLibrary): void {
  if (status === "missing" && !optional) throw refuse(`${path} cannot be shipped: ${reason}.`);
  if (status === "found" && !/^[\w+-][\w.+-]*$/.test(name))
    throw refuse(`${path} cannot be shipped: "${name}" is not a plain file name.`);
}

/** Reads every listed library and lays it out for the build; the first one that cannot be shipped is named. */
export function embedLibraries({ env, stagingDir, targetOs, machine }: EmbedOptions): Embed {
  const report = bundleLibraries({ env, targetOs, machine });
  for (const library of report.libraries) checkLibrary(library);
  if (report.totals.bytes > BUNDLE_BYTES_MAX)
    throw refuse(`The libraries have ${report.totals.bytes} bytes, more than ${BUNDLE_BYTES_MAX}.`);
  mkdirSync(stagingDir, { recursive: true });
  const embedded = new Map<string, EmbeddedLibrary>();
  for (const { name, path, status } of report.libraries) {
    if (status !== "found") continue;
    const content = readFileSync(path);
    const sha256 = new Bun.CryptoHasher("sha256").update(content).digest("hex");
    writeFileSync(join(stagingDir, embeddedFileName(sha256)), content);
    embedded.set(name, { name, sha256, bytes: content.length });
  }
  const libraries = [...embedded.values()];
  const fileNames = new Set(libraries.map(({ sha256 }) => embeddedFileName(sha256)));
  return {
    report,
    files: [...fileNames].map((name) => join(stagingDir, name)),
    defines: libraries.length > 0 ? { BROWSER_BUNDLED_LIBS: JSON.stringify(libraries) } : {},
  };
}
