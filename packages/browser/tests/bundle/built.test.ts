import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { unpackLibraries } from "../../src/bundle/index.ts";
import { chromiumPath, type Site, startSite, startTool, testEnv } from "../helpers.ts";
import { tempDir } from "../resolve/support.ts";

const temp = tempDir();
const at = (...parts: string[]) => join(temp.path, ...parts);
const buildScript = join(import.meta.dir, "../../../../scripts/build-browser.ts");
let site: Site;

function cc(args: string[]): void {
  const built = Bun.spawnSync(["cc", "-Wl,--no-as-needed", ...args], { cwd: temp.path });
  expect(built.stderr.toString()).toBe("");
}

/** The real Chromium behind a program that needs a library which no directory of the loader has. */
beforeAll(() => {
  site = startSite({ "/": "<title>Here</title><h1>Hello</h1>" });
  mkdirSync(at("libs"));
  writeFileSync(at("extra.c"), "int extra(void) { return 7; }\n");
  writeFileSync(at("optional.c"), "int optional(void) { return 7; }\n");
  writeFileSync(
    at("browser.c"),
    `#include <unistd.h>
    int extra(void);
    int main(int count, char **arguments) {
      if (extra() != 7) return 3;
      arguments[0] = "${chromiumPath}";
      execv(arguments[0], arguments);
      return 4;
    }\n`,
  );
  cc(["-shared", "-fPIC", "-Wl,-soname,libextra.so.7", "-o", "libs/libextra.so.7.1", "extra.c"]);
  cc(["-shared", "-fPIC", "-o", "libs/liboptional.so", "optional.c"]);
  cc(["-o", "browser", "browser.c", "libs/libextra.so.7.1"]);
});
afterAll(async () => {
  await site.stop();
  temp.remove();
});

const browserEnv = () => ({
  ...testEnv,
  BROWSER_CHROMIUM_PATH: at("browser"),
  BROWSER_CACHE_DIR: at("cache"),
});

function build(env: Record<string, string>): { exitCode: number; output: string } {
  const { exitCode, stdout, stderr } = Bun.spawnSync(
    [process.execPath, buildScript, "--outfile", at("tool")],
    { env: { ...process.env, ...env } },
  );
  return { exitCode, output: `${stdout}${stderr}` };
}

/** Opens a page with the built tool and returns its snapshot. */
async function openWithTool(): Promise<string> {
  const tool = Bun.spawn([at("tool"), "debug", "--port", "0"], { env: browserEnv(), stdout: "pipe" });
  try {
    const reader = tool.stdout.getReader();
    const line = new TextDecoder().decode((await reader.read()).value);
    const url = /http:\S+/.exec(line)?.[0] ?? "";
    const navigated = await fetch(`${url}/navigate`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ url: site.url }),
    });
    if (!navigated.ok) throw new Error(await navigated.text());
    const { snapshot } = (await (await fetch(`${url}/a11y`)).json()) as { snapshot: string };
    return snapshot;
  } finally {
    tool.kill();
    await tool.exited;
  }
}

const bundleDir = () => at("cache", "libs", readdirSync(at("cache", "libs"))[0]!);

describe("libraries that are built into the tool", () => {
  test("a browser that lacks one does not start without them", async () => {
    const alone = Bun.spawnSync([at("browser")]);
    expect(alone.exitCode).toBe(127);
    expect(alone.stderr.toString()).toContain("libextra.so.7");
    const tool = startTool({ env: browserEnv() });
    try {
      const { body } = await tool.post("/navigate", { url: site.url });
      expect(body.error.code).toBe("browser_unavailable");
    } finally {
      await tool.stop();
    }
  });

  test("it starts with them; what is laid down is checked, and laid down again when it is damaged", async () => {
    writeFileSync(
      at("bundle.toml"),
      `[[lib]]\npath = "libs/liboptional.so"\noptional = true\n[[lib]]\npath = "libs/none.so"\noptional = true\n`,
    );
    const built = build({
      BROWSER_BUNDLE_LIBS: at("libs/libextra.so.7.1"),
      BROWSER_BUNDLE_MANIFEST: at("bundle.toml"),
    });
    expect(built).toEqual({ exitCode: 0, output: expect.stringContaining("2 found, 1 missing") });
    // The build has them; where they came from is not needed any more.
    rmSync(at("libs"), { recursive: true });

    expect(await openWithTool()).toContain('heading "Hello"');
    expect(readdirSync(bundleDir()).sort()).toEqual(["libextra.so.7", "liboptional.so"]);

    const library = join(bundleDir(), "libextra.so.7");
    const { size } = statSync(library);
    truncateSync(library, 100);
    writeFileSync(join(bundleDir(), "liboptional.so"), "something else");
    const opened = await Promise.all([openWithTool(), openWithTool()]);
    for (const snapshot of opened) expect(snapshot).toContain('heading "Hello"');
    expect(statSync(library).size).toBe(size);
    expect(readdirSync(at("cache", "libs"))).toHaveLength(1);

    const doctor = Bun.spawnSync([at("tool"), "doctor", "--json"], { env: browserEnv() });
    const report = JSON.parse(doctor.stdout.toString());
    expect(report).toMatchObject({ ok: true, binary: { missing: [], bundled: ["libextra.so.7"] } });
    const deps = Bun.spawnSync([at("tool"), "deps", at("browser")], {
      env: { ...process.env, LD_LIBRARY_PATH: bundleDir() },
    });
    expect(deps.stdout.toString()).toContain(`libextra.so.7 => ${library} (LD_LIBRARY_PATH)`);
    const without = Bun.spawnSync([at("tool"), "deps", at("browser")]);
    expect(without.stdout.toString()).toContain("libextra.so.7 => not found");
  }, 120_000);

  test("a build with a library that cannot be shipped fails, and says why", () => {
    const missing = build({ BROWSER_BUNDLE_LIBS: at("libs/absent.so") });
    expect(missing).toEqual({ exitCode: 1, output: expect.stringContaining("absent.so cannot be shipped") });
    writeFileSync(at("text.so"), "not a library ".repeat(20));
    expect(build({ BROWSER_BUNDLE_LIBS: at("text.so") })).toMatchObject({ exitCode: 1 });
    const foreign = readFileSync("/bin/sh");
    foreign.writeUInt16LE(foreign.readUInt16LE(18) === 62 ? 183 : 62, 18);
    writeFileSync(at("foreign.so"), foreign);
    expect(build({ BROWSER_BUNDLE_LIBS: at("foreign.so") }).output).toContain("is for ");
  });
});

describe("laying libraries down", () => {
  const content = Buffer.from("library");
  const sha256 = new Bun.CryptoHasher("sha256").update(content).digest("hex");
  const libraries = [{ name: "liba.so", sha256, bytes: content.length }];

  test("leftovers of a killed process are removed, and nothing is done where there is nothing", async () => {
    const cacheDir = at("laid");
    const open = async () => content;
    const directory = (await unpackLibraries({ cacheDir, libraries, open }))!;
    const leftover = `${join(cacheDir, "libs", ".tmp-")}${directory.split("/").at(-1)}-dead`;
    mkdirSync(leftover);
    rmSync(directory, { recursive: true });
    expect(await unpackLibraries({ cacheDir, libraries, open })).toBe(directory);
    expect(existsSync(leftover)).toBe(false);
    expect(await unpackLibraries({ cacheDir: at("untouched"), libraries: [] })).toBeNull();
    expect(existsSync(at("untouched"))).toBe(false);
  });

  test("wrong content and a cache that cannot be written are refused with the way out", async () => {
    const wrong = unpackLibraries({
      cacheDir: at("wrong"),
      libraries,
      open: async () => Buffer.from("else"),
    });
    await expect(wrong).rejects.toMatchObject({ code: "bundle_invalid" });
    writeFileSync(at("file"), "");
    const blocked = unpackLibraries({ cacheDir: at("file"), libraries, open: async () => content });
    await expect(blocked).rejects.toMatchObject({ code: "cache_unusable" });
  });
});
