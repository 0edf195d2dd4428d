/**
 * Builds the browser tool as one executable file: `bun scripts/build-browser.ts [--outfile dist/browser-tool]`.
 * The result needs nothing else on the machine but a browser.
 */
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { fetchForBuild, readFeatures } from "../packages/browser/src/resolve/index.ts";

const root = join(import.meta.dir, "..");
const { values } = parseArgs({
  options: {
    outfile: { type: "string", default: join(root, "dist/browser-tool") },
    target: { type: "string" },
  },
});
mkdirSync(dirname(values.outfile), { recursive: true });

/** The features are fixed when the tool is built; the environment of the build decides them. */
async function featureDefines(): Promise<string[]> {
  const defines: Record<string, string> = {};
  const features = readFeatures(process.env);
  defines.BROWSER_FEATURE_RUNTIME_FETCH = String(features.runtimeFetch);
  defines.BROWSER_FEATURE_FOREIGN_ENGINE = String(features.foreignEngine);
  if (features.autoFetch) Object.assign(defines, (await fetchForBuild()).defines);
  return Object.entries(defines).map(([name, value]) => `--define=${name}=${value}`);
}

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
    ...(await featureDefines()),
    ...(values.target ? [`--target=${values.target}`] : []),
    join(root, "packages/browser/src/cli.ts"),
    "--outfile",
    values.outfile,
  ],
  { stdout: "inherit", stderr: "inherit" },
);
process.exit(exitCode);
