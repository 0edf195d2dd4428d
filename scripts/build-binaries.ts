/**
 * `npm run binaries [-- --only <target>] [--out dist]`
 *
 * Writes model-gateway-<target> and browser-tool-<target>, each one executable, for linux-x64, linux-arm64, darwin-x64,
 * darwin-arm64 and windows-x64. The Bun that goes into them comes from the npm registry, in the version that this
 * project is pinned to.
 */
import "./lib/help.ts";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import manifest from "../package.json" with { type: "json" };
import { parseArgs } from "./lib/args.ts";

const TARGETS = ["linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64", "windows-x64"] as const;
type Target = (typeof TARGETS)[number];

const root = join(import.meta.dir, "..");
const BUN_VERSION = manifest.dependencies.bun;
const { values } = parseArgs({
  options: {
    only: { type: "string", multiple: true },
    out: { type: "string", default: join(root, "dist") },
  },
});

function run(command: string[], cwd = root): void {
  const { exitCode } = Bun.spawnSync(command, { cwd, stdout: "ignore", stderr: "inherit" });
  if (exitCode !== 0) throw new Error(`${command[0]} ended with ${exitCode}`);
}

/** The Bun of another system, by way of the registry that npm is set up for. */
function fetchBun(target: Target, workDir: string): string {
  const isWindows = target.startsWith("windows");
  const dir = join(workDir, target);
  mkdirSync(dir, { recursive: true });
  const name = `@oven/bun-${target.replace("arm64", "aarch64")}`;
  run([process.platform === "win32" ? "npm.cmd" : "npm", "pack", "--silent", `${name}@${BUN_VERSION}`], dir);
  run(["tar", "xzf", `oven-bun-${target.replace("arm64", "aarch64")}-${BUN_VERSION}.tgz`], dir);
  return join(dir, "package/bin", isWindows ? "bun.exe" : "bun");
}

function build(target: Target, workDir: string): void {
  const bun = fetchBun(target, workDir);
  const suffix = target.startsWith("windows") ? ".exe" : "";
  for (const [script, name] of [
    ["build-gateway.ts", "model-gateway"],
    ["build-browser.ts", "browser-tool"],
  ] as const) {
    const outfile = join(values.out, `${name}-${target}${suffix}`);
    const program = join(import.meta.dir, script);
    run([process.execPath, program, "--target", `bun-${target}`, "--bun", bun, "--outfile", outfile]);
    console.log(`wrote ${outfile}`);
  }
}

function main(): void {
  const wanted = values.only ?? TARGETS;
  const unknown = wanted.find((target) => !TARGETS.includes(target as Target));
  if (unknown !== undefined) throw new Error(`--only ${unknown}: choose from ${TARGETS.join(", ")}`);
  mkdirSync(values.out, { recursive: true });
  const workDir = mkdtempSync(join(tmpdir(), "bun-targets-"));
  try {
    for (const target of wanted) build(target as Target, workDir);
  } finally {
    rmSync(workDir, { recursive: true, force: true });
  }
}

try {
  main();
} catch (error) {
  console.error(`build-binaries: ${(error as Error).message}`);
  process.exitCode = 1;
}
