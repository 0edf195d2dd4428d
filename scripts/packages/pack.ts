/**
 * `npm run pack [-- --out dist]`
 *
 * npm packages that run from their tarball alone: writes model-gateway-<version>.tgz, model-agent-<version>.tgz
 * and browser-tool-<version>.tgz. Each holds its program in one file, with bytecode; Bun is its only dependency.
 */
import "../lib/help.ts";
import { copyFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import manifest from "../../package.json" with { type: "json" };
import { parseArgs } from "../lib/args.ts";
import { bundle } from "./bundle.ts";
import { browserTool, gateway, nodeProgram, type Program, ROOT } from "./programs.ts";

/** Of Node, which only starts Bun. */
const NODE_MIN = ">=20";

async function pack(program: Program, outDir: string): Promise<void> {
  const dir = join(outDir, "npm", program.name);
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(join(dir, "bin"), { recursive: true });
  await bundle(program, join(dir, "lib"));
  const bin = `bin/${program.name}.js`;
  copyFileSync(join(import.meta.dir, "launcher.js"), join(dir, bin));
  copyFileSync(program.readme, join(dir, "README.md"));
  const described = {
    // In a scope: a bare name that is not published could be anyone's.
    name: `@model-gateway/${program.name}`,
    version: manifest.version,
    description: program.description,
    type: "module",
    bin: { [program.name]: bin },
    files: ["bin", "lib"],
    engines: { node: NODE_MIN },
    dependencies: { bun: manifest.dependencies.bun },
  };
  writeFileSync(join(dir, "package.json"), `${JSON.stringify(described, null, 2)}\n`);
  const npm = process.platform === "win32" ? "npm.cmd" : "npm";
  const packed = Bun.spawnSync([npm, "pack", "--silent", "--pack-destination", outDir], { cwd: dir });
  if (packed.exitCode !== 0) throw new Error(`npm pack: ${packed.stderr}`);
  const file = join(outDir, `${program.name}-${manifest.version}.tgz`);
  renameSync(join(outDir, packed.stdout.toString().trim()), file);
  console.log(`wrote ${file}`);
}

const { values } = parseArgs({
  options: { out: { type: "string", default: join(ROOT, "dist") } },
});
mkdirSync(values.out, { recursive: true });
for (const program of [gateway, nodeProgram, browserTool]) await pack(program, values.out);
