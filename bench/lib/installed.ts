import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

const INSTALL_WITHIN_MS = 120_000;

/**
 * A package from npm that is something to compare with and nothing that the project needs, so it lies outside of it.
 * Installed at its first use; `overrides` are those of a package.json. Returns the path of `file` in it.
 */
export function installed(
  { name, version, file }: { name: string; version: string; file: string },
  overrides: Readonly<Record<string, string>> = {},
): string {
  const cache = process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache");
  const home = join(cache, `model-gateway-bench/${name.slice(1).replace("/", "-")}-${version}`);
  const path = join(home, "node_modules", name, file);
  if (existsSync(path)) return path;
  console.log(`installing ${name} ${version} into ${home}`);
  mkdirSync(home, { recursive: true });
  writeFileSync(
    join(home, "package.json"),
    JSON.stringify({ private: true, dependencies: { [name]: version }, overrides }),
  );
  const { exitCode, stderr } = Bun.spawnSync(
    ["npm", "install", "--prefix", home, "--ignore-scripts", "--no-audit", "--no-fund"],
    { timeout: INSTALL_WITHIN_MS, stderr: "pipe" },
  );
  if (exitCode === 0) return path;
  console.error(stderr.toString().trim());
  throw new Error("npm could not install it");
}

export function nodePath(): string {
  const node = Bun.which("node");
  if (!node) throw new Error("it needs node");
  return node;
}
