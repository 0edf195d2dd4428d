import { afterAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fetchForBuild } from "../../src/resolve/index.ts";
import { startFileServer } from "./servers.ts";
import { TEST_PLATFORM, TEST_VERSION, tempDir } from "./support.ts";
import { makeChromeZip } from "./zip-writer.ts";

const temp = tempDir();
afterAll(temp.remove);

const program = `
import { planResolution } from ${JSON.stringify(join(import.meta.dir, "../../src/resolve/index.ts"))};
const { steps, outcome } = await planResolution();
console.log(JSON.stringify({ steps, engine: outcome.kind === "found" ? outcome.engine : null }));
`;

/** Bundled like the real tool, defines included; compiling to one file does not change what defines do. */
async function bundled(defines: Record<string, string>, env: Record<string, string>) {
  writeFileSync(join(temp.path, "program.ts"), program);
  const built = await Bun.build({
    entrypoints: [join(temp.path, "program.ts")],
    target: "bun",
    define: defines,
    outdir: join(temp.path, "out"),
  });
  expect(built.success).toBe(true);
  const child = Bun.spawn([process.execPath, join(temp.path, "out", "program.js")], { env, stdout: "pipe" });
  return JSON.parse(await new Response(child.stdout).text());
}

describe("auto-fetch at build time", () => {
  test("bakes the path of what it fetched, which the environment cannot change", async () => {
    const server = await startFileServer(makeChromeZip(TEST_PLATFORM, TEST_VERSION));
    try {
      const fetched = await fetchForBuild({
        env: { BROWSER_CHROME_MIRROR: server.url, BROWSER_CHROME_VERSION: TEST_VERSION },
        target: { os: "linux", arch: "x64" },
        outDir: join(temp.path, "baked"),
      });
      expect(fetched).toMatchObject({ skipped: false, version: TEST_VERSION, verified: false });
      const env = { BROWSER_FEATURE_AUTO_FETCH: "0", BROWSER_BAKED_CHROME: "/elsewhere" };
      const { engine } = await bundled(fetched.defines, env);
      expect(engine).toEqual({
        kind: "cdp",
        name: "chrome",
        path: fetched.path,
        source: "baked",
        version: TEST_VERSION,
      });
    } finally {
      await server.close();
    }
  });

  test("is skipped on request, and the tool then looks further", async () => {
    const fetched = await fetchForBuild({ env: { BROWSER_SKIP_BROWSER_FETCH: "1" } });
    expect(fetched).toMatchObject({ skipped: true, path: null });
    const { steps } = await bundled(fetched.defines, { BROWSER_CACHE_DIR: temp.path });
    expect(steps[1]).toEqual({ step: "baked", outcome: "nothing", detail: "the build skipped its download" });
    expect(steps[2].step).toBe("system");
  });
});
