/** Builds a shared library from C as a vendor would. */
import { expect } from "bun:test";
import { join } from "node:path";

export const include = join(import.meta.dir, "../../include");
const stubSource = join(import.meta.dir, "stub_engine.c");

export function compileEngine(path: string, flags: string[] = [], source = stubSource): string {
  const command = ["cc", "-std=gnu11", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread", `-I${include}`];
  const built = Bun.spawnSync([...command, ...flags, "-o", path, source]);
  expect(built.stderr.toString()).toBe("");
  return path;
}
