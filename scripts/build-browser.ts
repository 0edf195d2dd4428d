/**
 * Builds the browser tool as one executable file: `bun scripts/build-browser.ts [--outfile dist/browser-tool]`.
 * The result needs nothing else on the machine but a browser.
 */
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";

const root = join(import.meta.dir, "..");
const { values } = parseArgs({
  options: {
    outfile: { type: "string", default: join(root, "dist/browser-tool") },
    target: { type: "string" },
  },
});
mkdirSync(dirname(values.outfile), { recursive: true });
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
    ...(values.target ? [`--target=${values.target}`] : []),
    join(root, "packages/browser/src/cli.ts"),
    "--outfile",
    values.outfile,
  ],
  { stdout: "inherit", stderr: "inherit" },
);
process.exit(exitCode);
