/**
 * One executable that holds the service, the command line, the console and the documentation:
 *
 *   bun scripts/build-gateway.ts [--target bun-linux-x64] [--bun <path of that system's Bun>] [--outfile dist/model-gateway]
 */
import "./lib/help.ts";
import { parseArgs } from "./lib/args.ts";
import { gateway } from "./packages/programs.ts";

const { values } = parseArgs({
  options: {
    target: { type: "string" },
    bun: { type: "string" },
    outfile: { type: "string", default: "dist/model-gateway" },
  },
});

const define = await gateway.defines();
for (const { constant, pathInExecutable } of gateway.workers)
  define[constant] = JSON.stringify(pathInExecutable);

const built = await Bun.build({
  entrypoints: [gateway.entry, ...gateway.workers.map(({ entry }) => entry)],
  target: "bun",
  format: "esm",
  bytecode: true,
  minify: true,
  define,
  compile: {
    outfile: values.outfile,
    ...(values.target && { target: values.target as Bun.Build.CompileTarget }),
    ...(values.bun && { executablePath: values.bun }),
  },
});
for (const log of built.logs) console.error(log);
if (!built.success) process.exit(1);
console.log(`wrote ${values.outfile}`);
