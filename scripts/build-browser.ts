/**
 * Builds the browser tool as one executable file: `bun scripts/build-browser.ts [--outfile dist/browser-tool]`.
 * The result needs nothing else on the machine but a browser. The libraries of BROWSER_BUNDLE_LIBS and
 * BROWSER_BUNDLE_MANIFEST go into the file, for browsers on systems that lack them.
 */
import "./lib/help.ts";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import {
  type Embed,
  embedLibraries,
  renderBundleReport,
  type TargetOs,
} from "../packages/browser/src/bundle/index.ts";
import { fetchForBuild, readFeatures } from "../packages/browser/src/resolve/index.ts";
import { parseArgs } from "./lib/args.ts";

const root = join(import.meta.dir, "..");
const { values } = parseArgs({
  options: {
    outfile: { type: "string", default: join(root, "dist/browser-tool") },
    target: { type: "string" },
    /** That target's Bun, when it is not to be downloaded. */
    bun: { type: "string" },
  },
});

/** The features are fixed when the tool is built; the environment of the build decides them. */
async function featureDefines(): Promise<Record<string, string>> {
  const defines: Record<string, string> = {};
  const features = readFeatures(process.env);
  defines.BROWSER_FEATURE_RUNTIME_FETCH = String(features.runtimeFetch);
  defines.BROWSER_FEATURE_FOREIGN_ENGINE = String(features.foreignEngine);
  if (features.autoFetch) Object.assign(defines, (await fetchForBuild()).defines);
  return defines;
}

/** System and processor of a target such as bun-linux-arm64; this machine's where it says nothing. */
function targetOf(target = ""): { targetOs: TargetOs; machine: string } {
  const os = /darwin|windows|linux/.exec(target)?.[0] ?? process.platform;
  const arch = /arm64|aarch64|x64/.exec(target)?.[0] ?? process.arch;
  const systems: Record<string, TargetOs> = { darwin: "macos", windows: "windows", win32: "windows" };
  const isArm = arch !== "x64";
  const targetOs = systems[os] ?? "linux";
  return { targetOs, machine: isArm ? (targetOs === "linux" ? "aarch64" : "arm64") : "x86_64" };
}

async function build({ files, defines }: Embed): Promise<number> {
  const all = { ...(await featureDefines()), ...defines };
  const { exitCode } = Bun.spawnSync(
    [
      process.execPath,
      "build",
      "--compile",
      "--minify",
      "--bytecode",
      "--format=esm",
      // A tool that waits most of the time is better off small than a little faster.
      "--compile-exec-argv=--smol",
      // Embedded files are found by their names.
      "--asset-naming=[name].[ext]",
      ...Object.entries(all).map(([name, value]) => `--define=${name}=${value}`),
      ...(values.target ? [`--target=${values.target}`] : []),
      ...(values.bun ? [`--compile-executable-path=${values.bun}`] : []),
      join(root, "packages/browser/src/cli.ts"),
      ...files,
      "--outfile",
      values.outfile,
    ],
    { stdout: "inherit", stderr: "inherit" },
  );
  return exitCode;
}

mkdirSync(dirname(values.outfile), { recursive: true });
const stagingDir = mkdtempSync(join(tmpdir(), "browser-bundle-"));
try {
  const embed = embedLibraries({ env: process.env, stagingDir, ...targetOf(values.target) });
  if (embed.report.libraries.length > 0) console.log(renderBundleReport(embed.report));
  process.exitCode = await build(embed);
} catch (error) {
  console.error(`build-browser: ${(error as Error).message}`);
  process.exitCode = 1;
} finally {
  rmSync(stagingDir, { recursive: true, force: true });
}
