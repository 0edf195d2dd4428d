#!/usr/bin/env node
// Runs the program with the Bun that was installed beside it. Node only starts it: it is what `npx` is sure to have.
import { spawn } from "node:child_process";
import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** Without its install script Bun's package holds a short text in the place of the program. */
const PROGRAM_BYTES_MIN = 1_000_000;
const SHELL_CHECKED_MS = 250;
const isProgram = (path) => (statSync(path, { throwIfNoEntry: false })?.size ?? 0) >= PROGRAM_BYTES_MIN;

/** The program in Bun's package, or in the one for this system, of which npm installs the one that fits. */
function findBun() {
  const home = folderOf("bun", import.meta.url);
  if (home === null) return undefined;
  const system = process.platform === "win32" ? "windows" : process.platform;
  const arch = process.arch === "arm64" ? "aarch64" : process.arch;
  const name = process.platform === "win32" ? "bun.exe" : "bun";
  const candidates = [join(home, "bin", "bun.exe")];
  for (const libc of ["", "-musl"]) {
    const found = folderOf(`@oven/bun-${system}-${arch}${libc}`, join(home, "package.json"));
    if (found !== null) candidates.push(join(found, "bin", name));
  }
  return candidates.find(isProgram);
}

/** Where a package is installed, as the file at `from` finds it; null when it is not. */
function folderOf(name, from) {
  try {
    return dirname(createRequire(from).resolve(`${name}/package.json`));
  } catch {
    return null;
  }
}

const bun = findBun();
if (bun === undefined) {
  console.error(
    `No Bun for ${process.platform} ${process.arch} is installed beside this program; install it again without --omit=optional.`,
  );
  process.exit(1);
}
const program = join(dirname(fileURLToPath(import.meta.url)), "..", "lib", "main.js");
const child = spawn(bun, [program, ...process.argv.slice(2)], {
  stdio: "inherit",
  // What packages/cli/src/service/runtime.ts explains; with it the program need not start itself again.
  env: {
    BUN_CONFIG_MAX_HTTP_REQUESTS: "65336",
    BUN_JSC_forceCodeBlockLiveness: "1",
    BUN_JSC_numberOfGCMarkers: "2",
    MIMALLOC_PURGE_HOLES_MIN_INTERVAL: "10000",
    ...process.env,
  },
});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  // A terminal sends SIGINT to the child too, and a second one would end it at once.
  const isSentToBoth = signal === "SIGINT" && process.stdin.isTTY;
  process.on(signal, () => isSentToBoth || child.kill(signal));
}
// npx passes a signal on to its shell, which ends without telling us.
if (process.env.npm_command === "exec" && process.platform !== "win32") {
  const shell = process.ppid;
  setInterval(() => process.ppid === shell || child.kill("SIGTERM"), SHELL_CHECKED_MS);
}
child.on("error", (error) => {
  console.error(`Bun cannot be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  process.exit(code ?? (signal === null ? 1 : 128));
});
