import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import manifest from "../../package.json" with { type: "json" };

const ROOT = join(import.meta.dir, "../..");
const scripts = Object.entries(manifest.scripts).filter(([, command]) => command.includes("bun "));

async function ran(command: string, option: string) {
  const words = command.replace(/^(exec )?bun /, "").split(" ");
  const child = Bun.spawn([process.execPath, ...words, option], {
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
  return { out, err, code };
}

test.each(scripts)("npm run %s -- --help says what it does, and does nothing", async (_, command) => {
  const { out, err, code } = await ran(command, "--help");
  expect([code, err]).toEqual([0, ""]);
  expect(out.length).toBeGreaterThan(40);
  expect(out).not.toMatch(/^\s*\*|^\s+at /m);
});

const withOptions = scripts.filter(([, command]) =>
  readFileSync(join(ROOT, command.split(" ").at(-1)!), "utf8").includes("lib/args.ts"),
);
test.each(withOptions)("npm run %s names an option that it does not have", async (_, command) => {
  const { out, err, code } = await ran(command, "--no-such-option");
  expect([code, out]).toEqual([2, ""]);
  expect(err).toContain("'--no-such-option'");
  expect(err.trim().split("\n")).toHaveLength(1);
});
