import { expect, test } from "bun:test";
import { join } from "node:path";
import manifest from "../../package.json" with { type: "json" };

const ROOT = join(import.meta.dir, "../..");
const scripts = Object.entries(manifest.scripts).filter(([, command]) => command.includes("bun "));

test.each(scripts)("npm run %s -- --help says what it does, and does nothing", async (_, command) => {
  const words = command.replace(/^(exec )?bun /, "").split(" ");
  const child = Bun.spawn([process.execPath, ...words, "--help"], {
    cwd: ROOT,
    env: { PATH: process.env.PATH!, HOME: process.env.HOME ?? "/" },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  expect([code, err]).toEqual([0, ""]);
  expect(out.length).toBeGreaterThan(40);
  expect(out).not.toMatch(/^\s*\*|^\s+at /m);
});
