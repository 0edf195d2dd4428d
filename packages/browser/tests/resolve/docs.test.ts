import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import { setupErrorCodes } from "../../src/resolve/errors.ts";
import { PINNED_VERSION } from "../../src/resolve/index.ts";

const root = join(import.meta.dir, "../../../..");
const page = readFileSync(join(root, "docs/browser-binaries.md"), "utf8");

describe("docs/browser-binaries.md", () => {
  test("has every variable that the code reads, and the pinned version", async () => {
    const names = new Set<string>();
    for (const folder of ["resolve", "bundle", "engines/foreign"])
      for await (const file of new Glob("*.ts").scan(join(root, "packages/browser/src", folder))) {
        const text = readFileSync(join(root, "packages/browser/src", folder, file), "utf8");
        for (const [name] of text.matchAll(/\bBROWSER_[A-Z0-9_]+[A-Z0-9]\b/g)) names.add(name);
      }
    expect(names.size).toBeGreaterThan(15);
    expect([...names].filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
    expect(page).toContain(PINNED_VERSION);
  });

  test("explains exactly the error codes that exist", () => {
    const explained = [...page.matchAll(/^\| `([a-z_]+)` *\|/gm)].map(([, code]) => code);
    expect(explained).toEqual([...setupErrorCodes]);
  });
});
