/**
 * `npm run webkit -- build`   builds the WebKit engine of the browser tool (Debian as root: installs what that needs)
 * `npm run webkit -- install` builds it and puts it where the tool looks: ~/.local/lib/browser-engines
 * `npm run webkit -- test`    builds it and runs the browser tool's tests on it
 * `npm run webkit -- memory`  runs a session of its own with everything built for AddressSanitizer
 */
import "./lib/help.ts";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";

const folder = join(import.meta.dir, "../packages/webkit-engine");
const include = join(import.meta.dir, "../packages/browser/include");
const library = "libbrowser_engine_webkit.so";

function fail(message: string): never {
  console.error(`webkit: ${message}`);
  process.exit(1);
}

function run(command: string[], env: Record<string, string | undefined> = process.env): void {
  const { status, error } = spawnSync(command[0]!, command.slice(1), { stdio: "inherit", env });
  if (status !== 0) fail(`${command.join(" ")} failed${error ? `: ${error.message}` : ""}`);
}

const succeeds = (command: string, ...args: string[]) => spawnSync(command, args).status === 0;

/** What building and running need, each with the Debian package that has it. */
const needs: [debianPackage: string, isThere: () => boolean][] = [
  ["gcc", () => succeeds("cc", "--version")],
  ["libc6-dev", () => existsSync("/usr/include/stdio.h")],
  ["pkg-config", () => succeeds("pkg-config", "--version")],
  ["libwebkit2gtk-4.1-dev", () => succeeds("pkg-config", "--exists", "webkit2gtk-4.1 >= 2.42")],
  ["libjson-glib-dev", () => succeeds("pkg-config", "--exists", "json-glib-1.0")],
  ["xvfb", () => Bun.which("Xvfb") !== null],
];
const missing = () => needs.filter(([, isThere]) => !isThere()).map(([name]) => name);

function install(): void {
  const wanted = missing();
  if (wanted.length === 0) return;
  const names = wanted.join(" ");
  if (process.getuid?.() !== 0 || !Bun.which("apt-get"))
    fail(`it needs ${names} (Debian 12's names). As root on Debian: apt-get install ${names}`);
  console.log(`installing ${names} (about 100 MB to download)`);
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  run(["apt-get", "update", "-q"], env);
  run(["apt-get", "install", "-y", "-q", "--no-install-recommends", ...wanted], env);
}

function build(): void {
  install();
  run([join(folder, "build.sh")]);
}

function installLibrary(): void {
  build();
  const place = join(homedir(), ".local/lib/browser-engines");
  cpSync(join(folder, "dist"), place, { recursive: true });
  console.log(`installed in ${place}; use it with --backend webkit`);
}

function test(): void {
  build();
  const env = {
    ...process.env,
    TEST_ENGINES: "webkit",
    BROWSER_WEBKIT_LIB: join(folder, "dist", library),
  };
  run(
    [process.execPath, join(import.meta.dir, "test.ts"), "packages/browser", ...process.argv.slice(3)],
    env,
  );
}

const runtimeOf = (name: string) =>
  spawnSync("cc", [`-print-file-name=${name}`])
    .stdout.toString()
    .trim();

/**
 * Errors count wherever they are. Leaks count where code of ours asked for the memory, or GLib did: what called GLib
 * is not seen, and what GTK and WebKit leave to the end of the process is not taken from there.
 */
const isOurs = (block: string) =>
  /browser-webkit-engine|libbrowser_engine_webkit|driver|lib(json-)?glib/.test(block);

function findings(logs: string): string[] {
  return readdirSync(logs).flatMap((name) => {
    const blocks = readFileSync(join(logs, name), "utf8").split(/\n\n+/);
    return blocks.filter(
      (block) =>
        /ERROR: AddressSanitizer|runtime error/.test(block) || (/leak of/.test(block) && isOurs(block)),
    );
  });
}

function memory(): void {
  install();
  const out = mkdtempSync(join(tmpdir(), "webkit-memory-"));
  const logs = join(out, "logs");
  const bin = join(out, "bin");
  for (const dir of [logs, bin]) mkdirSync(dir);
  const checks = "-fsanitize=address,undefined -fno-omit-frame-pointer";
  try {
    run([join(folder, "build.sh"), out], {
      ...process.env,
      CFLAGS: `${checks} -U_FORTIFY_SOURCE`,
      LDFLAGS: checks,
    });
    const driver = join(out, "driver");
    const flags = ["-std=gnu17", "-Wall", "-Wextra", "-Werror", "-g", ...checks.split(" ")];
    run(["cc", ...flags, `-I${include}`, "-o", driver, join(folder, "tests/driver.c"), "-ldl"]);
    // The display server is not under test, and the checks would slow it down.
    const xvfb = join(bin, "Xvfb");
    writeFileSync(xvfb, `#!/bin/sh\nunset LD_PRELOAD\nexec ${Bun.which("Xvfb")} "$@"\n`);
    chmodSync(xvfb, 0o755);
    const log = `log_path=${join(logs, "log")}`;
    run([driver, join(out, library)], {
      ...process.env,
      PATH: `${bin}:${process.env.PATH}`,
      BROWSER_NO_SANDBOX: "1",
      LD_PRELOAD: `${runtimeOf("libasan.so")}:${runtimeOf("libubsan.so")}`,
      ASAN_OPTIONS: `detect_leaks=1:exitcode=0:${log}`,
      UBSAN_OPTIONS: `print_stacktrace=1:${log}`,
    });
    const found = findings(logs);
    if (found.length > 0) fail(`${found.length} findings\n\n${found.slice(0, 10).join("\n\n")}`);
    console.log("no errors, no leaks");
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}

const commands: Record<string, () => void> = { build, install: installLibrary, test, memory };
const command = commands[process.argv[2] ?? ""];
if (!command) fail(`say what to do: ${Object.keys(commands).join(", ")}`);
command();
