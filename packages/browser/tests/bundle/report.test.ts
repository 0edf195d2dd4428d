import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import {
  bundledLibraryEnv,
  bundleLibraries,
  renderBundleReport,
  renderScan,
} from "../../src/bundle/index.ts";
import { scanDependencies } from "../../src/bundle/scan.ts";
import { SetupError } from "../../src/resolve/errors.ts";
import { tempDir } from "../resolve/support.ts";
import { makePe } from "./images.ts";

const temp = tempDir();
afterAll(temp.remove);
const at = (...parts: string[]) => join(temp.path, ...parts);

function cc(args: string[]): void {
  const built = Bun.spawnSync(["cc", "-Wl,--no-as-needed", ...args], { cwd: temp.path });
  expect(built.stderr.toString()).toBe("");
}

beforeAll(() => {
  mkdirSync(at("libs"));
  writeFileSync(at("one.c"), "int one(void) { return 1; }\n");
  writeFileSync(at("two.c"), "int one(void); int two(void) { return one(); }\n");
  writeFileSync(at("main.c"), "int two(void); int main(void) { return two() - 1; }\n");
  const shared = ["-shared", "-fPIC"];
  cc([...shared, "-Wl,-soname,libone.so.1", "-o", "libs/libone.so.1.2.3", "one.c"]);
  cc([...shared, "-Wl,-soname,libtwo.so.2", "-o", "libs/libtwo.so.2.0", "two.c", "libs/libone.so.1.2.3"]);
  cc(["-Wl,--allow-shlib-undefined", "-o", "program", "main.c", "libs/libtwo.so.2.0"]);
});

function failure(env: Record<string, string>): SetupError {
  try {
    bundleLibraries({ env, targetOs: "linux" });
  } catch (error) {
    expect(error).toBeInstanceOf(SetupError);
    return error as SetupError;
  }
  throw new Error("expected a refusal");
}

function manifest(text: string): Record<string, string> {
  writeFileSync(at("bundle.toml"), text);
  return { BROWSER_BUNDLE_MANIFEST: at("bundle.toml") };
}

describe("bundling libraries", () => {
  test("ships what is listed under the names that are asked for, and the program then runs with it", () => {
    const env = { BROWSER_BUNDLE_LIBS: `${at("libs/libone.so.1.2.3")}:${at("libs/libtwo.so.2.0")}` };
    expect(Bun.spawnSync([at("program")], { stderr: "ignore" }).exitCode).toBe(127);
    const report = bundleLibraries({ env, outDir: at("out"), targetOs: "linux", binary: at("program") });
    expect(report.ok).toBe(true);
    expect(readdirSync(at("out")).sort()).toEqual(["libone.so.1", "libtwo.so.2"]);
    const bytes = statSync(at("out/libone.so.1")).size + statSync(at("out/libtwo.so.2")).size;
    expect(report.totals).toEqual({ found: 2, missing: 0, bundled: 2, bytes });
    const status = Object.fromEntries(report.dependencies.map(({ name, status: s }) => [name, s]));
    expect(status).toMatchObject({
      "libone.so.1": "bundled",
      "libtwo.so.2": "bundled",
      "libc.so.6": "system",
    });
    const started = Bun.spawnSync([at("program")], { env: bundledLibraryEnv(at("out"), {}) });
    expect(started.exitCode).toBe(0);
    expect(bundledLibraryEnv(at("nothing"), {})).toEqual({});
    expect(bundledLibraryEnv(at("out"), { LD_LIBRARY_PATH: "/x" })).toEqual({
      LD_LIBRARY_PATH: `${at("out")}:/x`,
    });
  });

  test("without a target directory nothing is written, and what is missing is told", () => {
    const env = { BROWSER_BUNDLE_LIBS: `${at("libs/libtwo.so.2.0")}:${at("libs/absent.so")}` };
    const report = bundleLibraries({ env, targetOs: "linux", binary: at("program") });
    expect(report.ok).toBe(false);
    expect(report.libraries.map(({ status, reason }) => [status, reason])).toEqual([
      ["found", undefined],
      ["missing", "no such file"],
    ]);
    // The file is there under another name than its soname, so the loader would not find it in place.
    expect(report.dependencies.filter(({ status }) => status === "missing").map(({ name }) => name)).toEqual([
      "libtwo.so.2",
      "libone.so.1",
    ]);
    const text = renderBundleReport(report);
    expect(text).toContain("missing  absent.so");
    expect(text).toContain("1 found, 3 missing, 0 bundled");
    expect(JSON.parse(JSON.stringify(report))).toEqual(report);
    expect(existsSync(at("libs/libone.so.1"))).toBe(false);
  });

  test("what lies beside a listed library is not shipped, so it is not called bundled", () => {
    const env = { BROWSER_BUNDLE_LIBS: at("libs/libone.so.1.2.3") };
    copyFileSync(at("libs/libtwo.so.2.0"), at("libs/libtwo.so.2"));
    copyFileSync(at("libs/libone.so.1.2.3"), at("libs/libone.so.1"));
    const { dependencies } = bundleLibraries({ env, targetOs: "linux", binary: at("program") });
    for (const name of ["libone.so.1", "libtwo.so.2"]) rmSync(at(`libs/${name}`));
    const statusOf = (name: string) => dependencies.find((each) => each.name === name)?.status;
    expect([statusOf("libone.so.1"), statusOf("libtwo.so.2")]).toEqual(["bundled", "system"]);
  });

  test("the manifest: relative paths, optional libraries, other systems", () => {
    writeFileSync(at("libs/win.dll"), makePe({}));
    const env = manifest(`
      # comments are fine
      [[lib]]
      path = "libs/libone.so.1.2.3"

      [[lib]]
      path = "libs/perhaps.so"
      optional = true

      [[lib]]
      path = "libs/win.dll"
      target_os = "windows"

      [[lib]]
      path = "libs/libtwo.so.2.0"
      target_os = "linux"
    `);
    const linux = bundleLibraries({ env, outDir: at("manifest-out"), targetOs: "linux" });
    expect(linux.ok).toBe(true);
    expect(linux.libraries.map(({ name, status }) => [name, status])).toEqual([
      ["libone.so.1", "bundled"],
      ["perhaps.so", "missing"],
      ["win.dll", "skipped"],
      ["libtwo.so.2", "bundled"],
    ]);
    const windows = bundleLibraries({ env, targetOs: "windows" });
    expect(windows.libraries.map(({ status }) => status)).toEqual(["missing", "missing", "found", "skipped"]);
    expect(windows.libraries[0]?.reason).toBe("is elf, windows needs pe");
    expect(windows.ok).toBe(false);
  });

  const mistakes: [string, string][] = [
    ['[[lib]]\npath = "a.so"\ncolour = "red"', 'unknown field "colour"'],
    ["[[lib]]\noptional = true", "has no path"],
    ['[[lib]]\npath = "a.so"\noptional = "yes"', "optional must be true or false"],
    ['[[lib]]\npath = "a.so"\ntarget_os = "beos"', '"beos" is unknown'],
    ['lib = "a.so"', "not a list"],
    ['[settings]\nx = 1\n[[lib]]\npath = "a.so"', 'unknown entry "settings"'],
    ["[[lib", "cannot be read"],
  ];
  test.each(mistakes)("a manifest with a mistake is refused: %j", (text, why) => {
    const error = failure(manifest(text));
    expect(error.code).toBe("bundle_invalid");
    expect(error.message).toContain(why);
    expect(error.message).toContain("[[lib]]");
  });

  test("a manifest that is not there, and two libraries under one name", () => {
    expect(failure({ BROWSER_BUNDLE_MANIFEST: at("none.toml") }).message).toContain("none.toml");
    mkdirSync(at("copy"));
    writeFileSync(at("copy/libone.so"), readFileSync(at("libs/libone.so.1.2.3")));
    const clash = failure({ BROWSER_BUNDLE_LIBS: `${at("libs/libone.so.1.2.3")}:${at("copy/libone.so")}` });
    expect(clash.message).toContain("would both ship as libone.so.1");
  });

  test("nothing listed is an empty report, and a scan has a text of its own", () => {
    const report = bundleLibraries({ env: {} });
    expect(report).toMatchObject({ libraries: [], dependencies: [], ok: true });
    expect(renderBundleReport(report)).toContain("none");
    const text = renderScan(scanDependencies(at("program")));
    expect(text).toContain("libtwo.so.2 => not found");
    expect(text).toContain("1 missing");
  });
});
