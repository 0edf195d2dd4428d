import { afterAll, describe, expect, test } from "bun:test";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { PINNED_VERSION, planResolution, resolveEngine, SetupError } from "../../src/resolve/index.ts";
import { defaultCacheDir } from "../../src/resolve/settings.ts";
import { browserCandidates, type Host, realHost } from "../../src/resolve/system.ts";
import { fakeHost, tempDir } from "./support.ts";

const temp = tempDir();
afterAll(temp.remove);
const emptyCache = { BROWSER_CACHE_DIR: join(temp.path, "empty") };

async function failure(env: Record<string, string>, host: Host = fakeHost(), backend?: string) {
  const error = await resolveEngine({ env: { ...emptyCache, ...env }, host, backend }).then(
    () => null,
    (thrown) => thrown,
  );
  expect(error).toBeInstanceOf(SetupError);
  return error as SetupError;
}

const baked = { BROWSER_FEATURE_AUTO_FETCH: "1", BROWSER_BAKED_CHROME: "/baked/chrome" };
const files = {
  override: "/my/chrome",
  baked: "/baked/chrome",
  system: "/usr/bin/chromium",
};

describe("the order of resolution", () => {
  test("override, then baked, then system, then download", async () => {
    const env = { ...emptyCache, ...baked, BROWSER_CHROME_PATH: files.override };
    const all = Object.values(files);
    expect(await resolveEngine({ env, host: fakeHost(all) })).toEqual({
      kind: "cdp",
      name: "chrome",
      path: files.override,
      source: "override",
    });
    const { BROWSER_CHROME_PATH: _, ...noOverride } = env;
    expect(await resolveEngine({ env: noOverride, host: fakeHost(all) })).toMatchObject({
      path: files.baked,
      source: "baked",
    });
    expect(await resolveEngine({ env: noOverride, host: fakeHost([files.system]) })).toEqual({
      kind: "cdp",
      name: "chromium",
      path: files.system,
      source: "system",
    });
    const { outcome, steps } = await planResolution({ env: noOverride, host: fakeHost() });
    expect(outcome).toMatchObject({
      kind: "download",
      build: { version: PINNED_VERSION, platform: "linux64" },
    });
    expect(steps.map(({ step, outcome: result }) => `${step} ${result}`)).toEqual([
      "override nothing",
      "baked nothing",
      "system nothing",
      "download used",
    ]);
  });

  test("every engine has its own override, and the backend chooses among them", async () => {
    const env = {
      BROWSER_CHROME_PATH: "/o/chrome",
      BROWSER_CHROMIUM_PATH: "/o/chromium",
      BROWSER_EDGE_PATH: "/o/edge",
      BROWSER_WEBKIT_LIB: "/o/webkit.so",
      BROWSER_SERVO_LIB: "/o/servo.so",
    };
    const host = fakeHost(Object.values(env));
    const resolved = (backend: string) => resolveEngine({ env: { ...env, BROWSER_BACKEND: backend }, host });
    expect(await resolved("Chrome")).toMatchObject({ kind: "cdp", path: "/o/chrome" });
    expect(await resolved("chromium")).toMatchObject({ name: "chromium", path: "/o/chromium" });
    expect(await resolved("edge")).toMatchObject({ name: "edge", path: "/o/edge" });
    expect(await resolved("webkit")).toEqual({
      kind: "foreign",
      name: "webkit",
      libraryPath: "/o/webkit.so",
      source: "override",
    });
    expect(await resolved("servo")).toMatchObject({ kind: "foreign", libraryPath: "/o/servo.so" });
    expect(await resolved("auto")).toMatchObject({ name: "chrome" });
    // An explicit choice wins over the variable.
    expect(
      await resolveEngine({ env: { ...env, BROWSER_BACKEND: "edge" }, backend: "servo", host }),
    ).toMatchObject({
      name: "servo",
    });
  });

  test("an override that cannot be used is an error, not a reason to take another browser", async () => {
    const error = await failure({ BROWSER_EDGE_PATH: "/nowhere/edge" }, fakeHost([files.system]));
    expect(error.code).toBe("override_unusable");
    expect(error.message).toContain("BROWSER_EDGE_PATH names /nowhere/edge, which does not exist");
    // Of a backend that was not asked for, it does not matter.
    const host = fakeHost([files.system]);
    const env = { BROWSER_EDGE_PATH: "/nowhere/edge", BROWSER_BACKEND: "chromium" };
    expect(await resolveEngine({ env, host })).toMatchObject({ source: "system" });
  });

  test("real files: what is not executable or only a stub is passed over", async () => {
    const bin = join(temp.path, "bin");
    mkdirSync(bin);
    writeFileSync(join(bin, "google-chrome"), "#!/bin/sh\n");
    writeFileSync(join(bin, "chromium-browser"), "#!/bin/sh\necho 'run snap install chromium'\n");
    writeFileSync(join(bin, "microsoft-edge"), "#!/bin/sh\n");
    mkdirSync(join(bin, "chromium"));
    chmodSync(join(bin, "chromium-browser"), 0o755);
    chmodSync(join(bin, "microsoft-edge"), 0o755);
    const env = { PATH: `relative:${bin}`, BROWSER_BACKEND: "edge" };
    expect(await resolveEngine({ env })).toMatchObject({ name: "edge", path: join(bin, "microsoft-edge") });
    const { whyUnusable } = realHost({});
    expect(whyUnusable(join(bin, "google-chrome"), "execute")).toBe("is not executable");
    expect(whyUnusable(join(bin, "google-chrome"), "load")).toBeNull();
    expect(whyUnusable(join(bin, "chromium"), "execute")).toBe("is not a file");
    expect(whyUnusable(join(bin, "chromium-browser"), "execute")).toBe("only asks to install the snap");
    const error = await failure({ BROWSER_CHROME_PATH: join(bin, "google-chrome") }, realHost({}));
    expect(error.message).toContain("which is not executable");
  });
});

describe("well-known places", () => {
  test("on macOS and Windows", () => {
    const mac = fakeHost([], { platform: "darwin", homeDir: "/Users/ann" });
    expect(browserCandidates("chrome", { PATH: "/opt/bin" }, mac)).toContain(
      "/Users/ann/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    );
    expect(browserCandidates("edge", {}, mac)).toContain(
      "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    );
    const windows = fakeHost([], { platform: "win32" });
    const env = {
      Path: "C:\\tools;D:\\bin",
      ProgramFiles: "C:\\Program Files",
      "ProgramFiles(x86)": "C:\\Program Files (x86)",
      LOCALAPPDATA: "C:\\Users\\ann\\AppData\\Local",
    };
    expect(browserCandidates("chrome", env, windows).slice(0, 3)).toEqual([
      "C:\\tools\\chrome.exe",
      "D:\\bin\\chrome.exe",
      "C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe",
    ]);
    expect(browserCandidates("edge", env, windows)).toContain(
      "C:\\Program Files (x86)\\Microsoft\\Edge\\Application\\msedge.exe",
    );
    expect(browserCandidates("chromium", env, windows)).toContain(
      "C:\\Users\\ann\\AppData\\Local\\Chromium\\Application\\chrome.exe",
    );
  });

  test("a vendor's engine library", async () => {
    const host = fakeHost(["/usr/local/lib/browser-engines/libbrowser_engine_servo.so"]);
    expect(await resolveEngine({ env: { BROWSER_BACKEND: "servo" }, host })).toMatchObject({
      kind: "foreign",
      source: "system",
    });
    // auto means a browser of the Chromium family.
    expect((await planResolution({ env: emptyCache, host })).outcome.kind).toBe("download");
  });

  test("the cache directory follows the system's custom", () => {
    expect(defaultCacheDir({ HOME: "/home/ann" }, "linux")).toBe("/home/ann/.cache/browser-tool");
    expect(defaultCacheDir({ HOME: "/home/ann", XDG_CACHE_HOME: "/x" }, "linux")).toBe("/x/browser-tool");
    expect(defaultCacheDir({ HOME: "/Users/ann" }, "darwin")).toBe("/Users/ann/Library/Caches/browser-tool");
  });
});

describe("what is downloaded", () => {
  const systems: [NodeJS.Platform, string, string, boolean][] = [
    ["linux", "x64", "linux64/chrome-linux64.zip", true],
    ["linux", "arm64", "linux-arm64/chrome-linux-arm64.zip", true],
    ["darwin", "arm64", "mac-arm64/chrome-mac-arm64.zip", true],
    ["darwin", "x64", "mac-x64/chrome-mac-x64.zip", false],
    ["win32", "x64", "win64/chrome-win64.zip", true],
    ["win32", "ia32", "win32/chrome-win32.zip", false],
  ];
  test.each(systems)("for %s on %s: %s", async (platform, arch, tail, checksumKnown) => {
    const { outcome } = await planResolution({ env: emptyCache, host: fakeHost([], { platform, arch }) });
    if (outcome.kind !== "download") throw new Error("expected a download");
    expect(outcome.build.url).toBe(
      `https://storage.googleapis.com/chrome-for-testing-public/${PINNED_VERSION}/${tail}`,
    );
    expect(outcome.build.sha256 !== null).toBe(checksumKnown);
  });

  test("where there is no build, the way out is named", async () => {
    const riscv = await failure({}, fakeHost([], { arch: "riscv64" }));
    expect(riscv.code).toBe("platform_unsupported");
    expect(riscv.message).toContain("BROWSER_CHROMIUM_PATH");
    const old = await failure({ BROWSER_CHROME_VERSION: "152.0.7977.134" }, fakeHost([], { arch: "arm64" }));
    expect(old.code).toBe("platform_unsupported");
    expect(old.message).toContain("153.0.8001.0");
    const alpine = await failure({}, fakeHost([], { libc: "musl" }));
    expect(alpine.code).toBe("platform_unsupported");
    expect(alpine.message).toContain("apk add chromium");
  });

  test("another version has no known checksum unless one is given", async () => {
    const env = {
      ...emptyCache,
      BROWSER_CHROME_VERSION: "155.0.1.2",
      BROWSER_CHROME_MIRROR: "https://m.example/cft/",
    };
    const plan = async (extra: Record<string, string>) =>
      (await planResolution({ env: { ...env, ...extra }, host: fakeHost() })).outcome;
    expect(await plan({})).toMatchObject({
      build: { sha256: null, url: "https://m.example/cft/155.0.1.2/linux64/chrome-linux64.zip" },
    });
    expect(await plan({ BROWSER_CHROME_SHA256: "A".repeat(64) })).toMatchObject({
      build: { sha256: "a".repeat(64) },
    });
  });
});

describe("switches and mistakes", () => {
  test("skipping, missing features and engines without a download", async () => {
    const skipped = await failure({ BROWSER_SKIP_BROWSER_FETCH: "1" });
    expect(skipped.code).toBe("download_skipped");
    expect(skipped.message).toContain("BROWSER_SKIP_BROWSER_FETCH");
    expect((await failure({ BROWSER_FEATURE_RUNTIME_FETCH: "0" })).code).toBe("browser_not_found");
    const edge = await failure({}, fakeHost(), "edge");
    expect(edge.code).toBe("browser_not_found");
    expect(edge.message).toContain("BROWSER_EDGE_PATH");
    const webkit = await failure({}, fakeHost(), "webkit");
    expect(webkit.code).toBe("engine_library_missing");
    expect(webkit.message).toContain("BROWSER_WEBKIT_LIB");
    const off = await failure({ BROWSER_FEATURE_FOREIGN_ENGINE: "off" }, fakeHost(), "servo");
    expect(off.code).toBe("feature_disabled");
  });

  const mistakes: [string, string][] = [
    ["BROWSER_BACKEND", "firefox"],
    ["BROWSER_CHROME_VERSION", "latest"],
    ["BROWSER_CHROME_VERSION", "../../etc/154.0.1.1"],
    ["BROWSER_CHROME_SHA256", "abc"],
    ["BROWSER_CHROME_MIRROR", "ftp://example.org"],
    ["BROWSER_DOWNLOAD_PROXY", "localhost:3128"],
    ["BROWSER_DOWNLOAD_PROXY", "socks4://localhost:1080"],
    ["BROWSER_DOWNLOAD_TIMEOUT_SECS", "soon"],
    ["BROWSER_DOWNLOAD_TIMEOUT_SECS", "-1"],
    ["BROWSER_SKIP_BROWSER_FETCH", "maybe"],
    ["BROWSER_FEATURE_AUTO_FETCH", "2"],
  ];
  test.each(mistakes)("%s=%s is refused by name", async (name, value) => {
    const error = await failure({ [name]: value });
    expect(error.code).toBe("invalid_setting");
    expect(error.message).toContain(name);
  });
});
