import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";

/** A script that makes a folder and starts a process that would outlive it; it says the pids of both. */
const SCRIPT = `
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
writeFileSync(join(mkdtempSync(join(tmpdir(), "left-")), "file"), "behind");
const child = Bun.spawn(["sleep", "600"]);
writeFileSync(Bun.argv[2], JSON.stringify([process.pid, child.pid]));
if (Bun.argv[3] === "stays") await child.exited;
process.exit(7);
`;

let dir = "";
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "run-test-"));
  writeFileSync(join(dir, "script.ts"), SCRIPT);
});
afterEach(() => rmSync(dir, { recursive: true }));

const lives = (pid: number) => {
  try {
    // A process that nobody has waited for is still listed.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
};

async function start(...args: string[]) {
  const file = join(dir, "pids");
  const runner = Bun.spawn(
    [process.execPath, join(import.meta.dir, "../run.ts"), join(dir, "script.ts"), file, ...args],
    { env: { ...process.env, TMPDIR: dir } },
  );
  await until("the script has begun", () => existsSync(file) && readFileSync(file, "utf8").endsWith("]"));
  return { runner, pids: JSON.parse(readFileSync(file, "utf8")) as number[] };
}

const nothingIsLeft = (pids: number[]) =>
  until(
    "processes and folders are gone",
    () => !pids.some(lives) && readdirSync(dir).every((name) => !name.startsWith("model-gateway-")),
  );

test("a script that ends leaves no process and no folder, and its status is passed on", async () => {
  const { runner, pids } = await start();
  expect(await runner.exited).toBe(7);
  await nothingIsLeft(pids);
});

test.each(["SIGTERM", "SIGINT", "SIGKILL"] as const)("nor does one that is ended by %s", async (signal) => {
  const { runner, pids } = await start("stays");
  runner.kill(signal);
  expect(await runner.exited).not.toBe(0);
  await nothingIsLeft(pids);
});
