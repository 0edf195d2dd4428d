import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { componentsOf, type Lock, problemsOf } from "../lib/sbom.ts";

const root = join(import.meta.dir, "..", "..");
const json = (file: string) => Bun.file(join(root, file)).json();
const run = (...args: string[]) => {
  const { exitCode, stdout } = Bun.spawnSync([process.execPath, "scripts/sbom.ts", ...args], { cwd: root });
  return { exitCode, text: stdout.toString() };
};

test("the bill of materials has every pinned package with its hash and licence", async () => {
  const { exitCode, text } = run();
  expect(exitCode).toBe(0);
  const { bomFormat, components } = JSON.parse(text);
  expect(bomFormat).toBe("CycloneDX");
  const { packages } = (await json("package-lock.json")) as Lock;
  const pinned = Object.entries(packages).filter(
    ([path, { link }]) => path.includes("node_modules/") && !link,
  );
  const names = new Set(
    pinned.map(([path, { version }]) => `${path.split("node_modules/").at(-1)}@${version}`),
  );
  expect(
    components.map(({ name, version }: { name: string; version: string }) => `${name}@${version}`).sort(),
  ).toEqual([...names].sort());
  for (const { hashes, licenses, purl } of components) {
    expect(hashes[0].content).toMatch(/^[0-9a-f]{128}$/);
    expect(licenses).toHaveLength(1);
    expect(purl).toStartWith("pkg:npm/");
  }
});

test("the licences of all packages are listed", async () => {
  const { exitCode, text } = run("--licences");
  expect(exitCode).toBe(0);
  expect(text).toContain(`bun ${Bun.version}`);
  expect(text.split("\n").filter((line) => line.startsWith("shipped, ")).length).toBeGreaterThan(1);
});

test("what is pinned without a hash, under another licence or with an install script is named", () => {
  const integrity = "sha512-AAAA";
  const lock = {
    version: "1",
    packages: {
      "": { version: "1" },
      "node_modules/good": { version: "1.0.0", license: "MIT", integrity },
      "node_modules/copyleft": { version: "1.0.0", license: "AGPL-3.0", integrity },
      "node_modules/tool": { version: "1.0.0", license: "MPL-2.0", integrity, dev: true },
      "node_modules/good/node_modules/@a/loose": { version: "2.0.0", license: "MIT" },
      "node_modules/runner": { version: "1.0.0", license: "ISC", integrity, hasInstallScript: true },
      "node_modules/own": { version: "1.0.0", link: true },
    },
  };
  expect(problemsOf(componentsOf(lock))).toEqual([
    "@a/loose@2.0.0 has no SHA-512 in package-lock.json",
    "copyleft@1.0.0 is shipped under AGPL-3.0",
    "runner@1.0.0 runs a script when it is installed",
  ]);
});

test("the runtime is the pinned one, and the security guide says which", async () => {
  const { dependencies } = await json("package.json");
  const { packages } = (await json("package-lock.json")) as Lock;
  expect(dependencies.bun).toBe(Bun.version);
  const binaries = Object.entries(packages).filter(([path]) => path.startsWith("node_modules/@oven/bun-"));
  expect(binaries.length).toBeGreaterThan(0);
  for (const [, { version, integrity }] of [...binaries, ["", packages["node_modules/bun"]!] as const])
    expect([version, integrity]).toEqual([Bun.version, expect.stringMatching(/^sha512-/)]);
  const guide = await Bun.file(join(root, "docs/security.md")).text();
  expect(guide).toContain(`Bun ${Bun.version}`);
  expect(guide).toContain(Bun.revision.slice(0, 9));
});

test("every default in the security guide names a test that exists", async () => {
  const guide = await Bun.file(join(root, "docs/security.md")).text();
  const rows = guide
    .slice(guide.indexOf("## Defaults"))
    .split("\n## ")[0]!
    .split("\n")
    .filter((line) => line.startsWith("| ") && !line.startsWith("| ---") && !line.startsWith("| Default"));
  expect(rows.length).toBeGreaterThan(20);
  const missing = rows.flatMap((row) => {
    const named = [
      ...row
        .split("|")
        .at(-2)!
        .matchAll(/`([^`]+)`/g),
    ].map(([, name]) => name!);
    if (named.length === 0) return [row];
    return named.filter(
      (name) =>
        !["", "packages/gateway/tests/"].some((folder) => existsSync(join(root, `${folder}${name}.test.ts`))),
    );
  });
  expect(missing).toEqual([]);
});
