import { afterAll, describe, expect, test } from "bun:test";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { debianPackageOf } from "../../src/resolve/host-facts.ts";
import { doctor, PINNED_VERSION, renderDoctor } from "../../src/resolve/index.ts";
import { fakeHost, tempDir } from "./support.ts";

const temp = tempDir();
afterAll(temp.remove);
const cache = { BROWSER_CACHE_DIR: join(temp.path, "cache") };

/** A program that is complete except for a library that Chrome needs and no machine under test has. */
function buildIncompleteProgram(): string {
  const dir = join(temp.path, "incomplete");
  mkdirSync(dir);
  writeFileSync(join(dir, "lib.c"), "int nss(void) { return 0; }\n");
  writeFileSync(join(dir, "main.c"), "int nss(void); int main(void) { return nss(); }\n");
  const run = (command: string[]) => expect(Bun.spawnSync(command, { cwd: dir }).exitCode).toBe(0);
  run(["cc", "-shared", "-fPIC", "-Wl,-soname,libnss3.so.test", "-o", "libnss.so", "lib.c"]);
  run(["cc", "-o", "browser", "main.c", "./libnss.so"]);
  return join(dir, "browser");
}

describe("doctor", () => {
  test("tells of a real browser behind a wrapper script", async () => {
    const chromium = process.env.TEST_CHROMIUM ?? Bun.which("chromium");
    if (!chromium) throw new Error("no Chromium to examine; install one");
    const report = await doctor({ env: { PATH: process.env.PATH, BROWSER_CHROMIUM_PATH: chromium } });
    expect(report.ok).toBe(true);
    expect(report.engine).toMatchObject({ kind: "cdp", path: chromium, source: "override" });
    expect(report.binary?.version).toMatch(/^\d+\.\d+/);
    expect(report.binary?.missing).toEqual([]);
    expect(report.binary?.libraries).toBeGreaterThan(20);
    const text = renderDoctor(report);
    expect(text).toContain(`BROWSER_CHROMIUM_PATH=${chromium}`);
    expect(text.endsWith("ok")).toBe(true);
  });

  test("names missing libraries and the package that has them", async () => {
    const path = buildIncompleteProgram();
    const report = await doctor({ env: { BROWSER_CHROME_PATH: path } });
    expect(report.ok).toBe(false);
    expect(report.binary?.missing).toEqual([
      { name: "libnss3.so.test", neededBy: path, debianPackage: "libnss3" },
    ]);
    expect(report.advice.join("\n")).toContain("apt install libnss3");
    expect(renderDoctor(report)).toContain("libnss3.so.test needed by");
  });

  test("knows the package names of old and new releases", () => {
    const release = (id: string, version: string) => `NAME="x"\nVERSION_ID="${version}"\nID=${id}\n`;
    expect(debianPackageOf("libasound.so.2", release("debian", "12"))).toBe("libasound2");
    expect(debianPackageOf("libasound.so.2", release("debian", "13"))).toBe("libasound2t64");
    expect(debianPackageOf("libasound.so.2", release("ubuntu", "24.04"))).toBe("libasound2t64");
    expect(debianPackageOf("libnss3.so", release("ubuntu", "24.04"))).toBe("libnss3");
    expect(debianPackageOf("libunheard.so.1", "")).toBeNull();
  });

  test("says what would be downloaded, and hides credentials", async () => {
    const env = {
      ...cache,
      BROWSER_DOWNLOAD_PROXY: "http://ann:secret@proxy.example:3128",
      BROWSER_CHROME_MIRROR: "https://bob:hidden@mirror.example/cft",
    };
    const report = await doctor({ env, host: fakeHost() });
    expect(report.ok).toBe(true);
    expect(report.download).toEqual({
      version: PINNED_VERSION,
      platform: "linux64",
      url: `https://mirror.example/cft/${PINNED_VERSION}/linux64/chrome-linux64.zip`,
      checksumKnown: true,
    });
    const all = JSON.stringify(report) + renderDoctor(report);
    expect(all).not.toContain("secret");
    expect(all).not.toContain("hidden");
    expect(all).toContain("proxy.example:3128");
  });

  test("repeats the error and its way out, and warns of settings that nobody used yet", async () => {
    const failed = await doctor({ env: { ...cache, BROWSER_SKIP_BROWSER_FETCH: "1" }, host: fakeHost() });
    expect(failed.ok).toBe(false);
    expect(failed.error?.code).toBe("download_skipped");
    expect(renderDoctor(failed)).toContain("not ok");
    const script = join(temp.path, "script");
    writeFileSync(script, "#!/bin/sh\necho Fake 99.1.2.3\n");
    chmodSync(script, 0o755);
    const warned = await doctor({ env: { BROWSER_CHROME_PATH: script, BROWSER_CHROME_SHA256: "x" } });
    expect(warned.advice.join()).toContain("BROWSER_CHROME_SHA256");
    expect(warned.binary?.version).toBe("99.1.2.3");
  });

  test("a file that is no browser is noticed", async () => {
    writeFileSync(join(temp.path, "silent"), "#!/bin/sh\n");
    chmodSync(join(temp.path, "silent"), 0o755);
    const report = await doctor({ env: { BROWSER_CHROME_PATH: join(temp.path, "silent") } });
    expect(report.ok).toBe(false);
    expect(report.advice.join()).toContain("does not answer --version");
  });
});
