/**
 * `npm run llama -- build <source folder>`  builds llama.cpp's server from a checkout of its source, with cmake, for the
 *                                           tests that run against it
 * `npm run llama -- test`                   runs those tests
 *
 * The server is put into `.cache/llama`, where the tests look for it; `TEST_LLAMA_SERVER` names another one.
 * `LLAMA_BUILD_JOBS` is how many compilers run at once (default: 2).
 */
import "./lib/help.ts";
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync } from "node:fs";
import { join, resolve } from "node:path";

const root = join(import.meta.dir, "..");
const place = join(root, ".cache/llama");

function fail(message: string): never {
  console.error(`llama: ${message}`);
  process.exit(1);
}

function run(command: string[]): void {
  const { status, error } = spawnSync(command[0]!, command.slice(1), { stdio: "inherit" });
  if (status !== 0) fail(`${command.join(" ")} failed${error ? `: ${error.message}` : ""}`);
}

/**
 * One file that runs on any processor of its kind: no GPU, no TLS, no web page. The tests' model has a few hundred
 * thousand weights, so the compiler's time counts for more than the server's.
 */
const options = {
  CMAKE_BUILD_TYPE: "Release",
  CMAKE_C_FLAGS_RELEASE: "-O1 -DNDEBUG",
  CMAKE_CXX_FLAGS_RELEASE: "-O1 -DNDEBUG",
  BUILD_SHARED_LIBS: "OFF",
  GGML_NATIVE: "OFF",
  GGML_OPENMP: "OFF",
  GGML_LLAMAFILE: "OFF",
  LLAMA_OPENSSL: "OFF",
  LLAMA_BUILD_TESTS: "OFF",
  LLAMA_BUILD_EXAMPLES: "OFF",
  LLAMA_BUILD_APP: "OFF",
  LLAMA_BUILD_UI: "OFF",
};

function build(): void {
  const source = process.argv[3] ? resolve(process.argv[3]) : fail("say where its source is: build <folder>");
  if (!existsSync(join(source, "tools/server/CMakeLists.txt")))
    fail(`${source} is not a checkout of llama.cpp: it has no tools/server`);
  for (const tool of ["cmake", "c++"])
    if (!Bun.which(tool)) fail(`it needs ${tool}. On Debian: apt-get install cmake g++`);
  const jobs = process.env.LLAMA_BUILD_JOBS ?? "2";
  if (!/^[1-9]\d?$/.test(jobs)) fail(`LLAMA_BUILD_JOBS is "${jobs}": it takes a number from 1 to 99`);
  const into = join(place, "build");
  mkdirSync(into, { recursive: true });
  const flags = Object.entries(options).map(([name, value]) => `-D${name}=${value}`);
  run(["cmake", "-S", source, "-B", into, ...flags]);
  run(["nice", "cmake", "--build", into, "--target", "llama-server", "--parallel", jobs]);
  cpSync(join(into, "bin/llama-server"), join(place, "llama-server"));
  console.log(`built ${join(place, "llama-server")}; npm run llama -- test`);
}

const test = () => run([process.execPath, join(import.meta.dir, "test.ts"), "tests/llama"]);

const commands: Record<string, () => void> = { build, test };
const command = commands[process.argv[2] ?? ""];
if (!command) fail(`say what to do: ${Object.keys(commands).join(", ")}`);
command();
