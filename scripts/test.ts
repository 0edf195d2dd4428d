/**
 * `npm test [-- <part of a path> …]`
 *
 * Runs every test (or those whose paths contain an argument) against real services, and ends with one line:
 * `N passed, M failed`. What the machine could not provide is named, and its tests count as skipped.
 *
 * A file with a failure runs once more at the end, alone and in a fresh process: on a busy machine something always
 * comes late, and what a failed test left behind must not fail others. What fails twice has failed.
 */
import "./lib/help.ts";
import { mkdtempSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startServices } from "@model-gateway/testing/services.ts";
import { bundleWorkers } from "./packages/bundle.ts";
import { gateway } from "./packages/programs.ts";

// What a killed process wrote is still there; only the death of the machine, which no test brings about, needs syncing.
const services = await startServices([
  "fsync=off",
  "synchronous_commit=off",
  "full_page_writes=off",
  "autovacuum=off",
]);
const stop = () => services.stop();
process.on("exit", stop);
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(130));

// In the folder that scripts/run.ts removes.
const threadsDir = mkdtempSync(join(tmpdir(), "threads-"));
await bundleWorkers(gateway, threadsDir);
const threads = gateway.workers.map(({ entry, file }) => [entry, join(threadsDir, file)]);

/**
 * Each of these processes runs one test file after the other, and half of that time it waits; so there is one more
 * than cores. The times in tests/timings.json let long files begin early; `npm test -- --update-timings` takes them
 * again. Loading the service anew for each file would cost minutes.
 */
const workers = Math.min(availableParallelism() + 1, 4);
/** So many failed files are not chance, and running them one by one would take long. */
const AGAIN_FILES_MAX = 12;

/** How much of each failure, and how many of them, are repeated at the end. */
const REPEATED_LINES_MAX = 60;
const REPEATED_MAX = 20;

/** What became of the tests of one file, and what the failed ones said: in a long run that scrolls away. */
class FileResult {
  readonly counts = { pass: 0, fail: 0, skip: 0 };
  readonly failures: string[][] = [];
  /** Lines since the last test ended: what a failing one says comes before its verdict. */
  #lines: string[] = [];
  /** Lines that still belong to an error outside of every test. */
  #left = 0;

  read(line: string): void {
    this.#lines.push(line);
    if (this.#left > 0) {
      this.failures.at(-1)!.push(line);
      this.#left--;
    }
    if (line === "# Unhandled error between tests") {
      this.#fail([line]);
      this.#left = REPEATED_LINES_MAX;
    }
    if (line.includes("(worker crashed: ")) this.#fail([line]);
    const verdict = /^\((pass|fail|skip)\) /.exec(line)?.[1] as keyof typeof this.counts | undefined;
    if (verdict === "fail") this.#fail(this.#lines.slice(-REPEATED_LINES_MAX));
    else if (verdict) this.counts[verdict]++;
    if (verdict) this.#lines = [];
  }

  #fail(lines: string[]): void {
    this.counts.fail++;
    this.failures.push(lines);
  }
}

/** Runs `bun test`, passes on what it reports (all on stderr), and reads from it what became of each file. */
async function runTests(args: string[]): Promise<{ files: Map<string, FileResult>; code: number }> {
  const preload = `--preload=${join(import.meta.dir, "lib/bundled-threads.ts")}`;
  const child = Bun.spawn([process.execPath, "test", "--timeout=60000", preload, ...args], {
    env: {
      ...process.env,
      ...services.env,
      BUN_CONFIG_MAX_HTTP_REQUESTS: "65336",
      TEST_BUNDLED_THREADS: JSON.stringify(Object.fromEntries(threads)),
      // Services that live for seconds need not be warm.
      SERVICE_WARM_UP: "0",
    },
    stdout: "inherit",
    stderr: "pipe",
  });
  const files = new Map<string, FileResult>();
  let current: FileResult | null = null;
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of child.stderr) {
    process.stderr.write(chunk);
    rest += decoder.decode(chunk, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop()!;
    for (const line of lines.map((each) => Bun.stripANSI(each))) {
      const file = /^(\S+\.test\.tsx?):$/.exec(line)?.[1];
      if (file) current = files.getOrInsertComputed(file, () => new FileResult());
      // The runner's own lists of failed and skipped tests, without what they said, come last.
      else if (/^\d+ tests? (failed|skipped):/.test(line)) current = null;
      else current?.read(line);
    }
  }
  return { files, code: await child.exited };
}

const args = process.argv.slice(2);
const { files, code } = await runTests([
  `--parallel=${workers}`,
  "--no-isolate",
  "--timings=tests/timings.json",
  ...args,
]);
const pattern = parseArgs({
  args,
  strict: false,
  options: { "test-name-pattern": { type: "string", short: "t" } },
}).values["test-name-pattern"];
const failed = [...files].filter(([, { counts }]) => counts.fail > 0);
const byChance = new Map<string, FileResult>();
for (const [file, before] of failed.length > AGAIN_FILES_MAX ? [] : failed) {
  const again = await runTests([...(pattern ? ["-t", String(pattern)] : []), `./${file}`]);
  const result = again.files.get(file);
  if (!result) continue;
  files.set(file, result);
  if (again.code === 0) byChance.set(file, before);
  else result.counts.fail ||= 1;
}

const results = [...files.values()];
const repeat = (title: string, from: Iterable<FileResult>) => {
  for (const lines of [...from].flatMap(({ failures }) => failures).slice(0, REPEATED_MAX))
    console.log(`\n--- ${title}:\n${lines.join("\n")}`);
};
repeat("failed at the first attempt", byChance.values());
repeat("once more", results);
for (const file of byChance.keys()) console.log(`passed at the second attempt: ${file}`);
for (const what of services.missing) console.log(`skipped for want of ${what}`);
const total = (verdict: "pass" | "fail" | "skip") =>
  results.reduce((sum, { counts }) => sum + counts[verdict], 0);
// A run that ends badly without naming a file has failed as well.
const failures = total("fail") || (code !== 0 && failed.length === 0 ? 1 : 0);
if (total("skip")) console.log(`${total("skip")} skipped`);
console.log(`${total("pass")} passed, ${failures} failed`);
process.exit(failures > 0 || total("pass") === 0 ? 1 : 0);
