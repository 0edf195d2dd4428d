/**
 * One executable that holds the service, the command line, the console and the documentation:
 *
 *   bun scripts/build-gateway.ts [--target bun-linux-x64] [--outfile dist/model-gateway]
 */
import { parseArgs } from "node:util";
import { buildHash } from "../packages/gateway/src/kernel/version.ts";
import { packAssets } from "../packages/gateway/src/transports/console/assets.ts";

const { values } = parseArgs({
  options: { target: { type: "string" }, outfile: { type: "string", default: "dist/model-gateway" } },
});

const SERVICE = "packages/cli/src/main.ts";
/** Loaded by its path, so nothing imports it. */
const SETTLING_WORKER = "packages/gateway/src/app/settling/worker.ts";
/** What both have in common is left out of the paths within the executable. */
const COMMON = "packages/";

const built = await Bun.build({
  entrypoints: [SERVICE, SETTLING_WORKER],
  target: "bun",
  minify: true,
  define: {
    CONSOLE_ASSETS: JSON.stringify(await packAssets()),
    BUILD_HASH: JSON.stringify(buildHash()),
    SETTLING_WORKER: JSON.stringify(`./${SETTLING_WORKER.slice(COMMON.length)}`),
  },
  compile: {
    outfile: values.outfile,
    ...(values.target && { target: values.target as Bun.Build.CompileTarget }),
  },
});
for (const log of built.logs) console.error(log);
if (!built.success) process.exit(1);
console.log(`wrote ${values.outfile}`);
