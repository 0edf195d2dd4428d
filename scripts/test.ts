/**
 * `npm test [-- <part of a path> …]`
 *
 * Runs every test (or those whose paths contain an argument) against real services, and ends with one line:
 * `N passed, M failed`. What the machine could not provide is named, and its tests count as skipped.
 */
import "./lib/help.ts";
import { availableParallelism } from "node:os";
import { startServices } from "@model-gateway/testing/services.ts";

// What a killed process wrote is still there; only the death of the machine, which no test brings about, needs syncing.
const services = await startServices(["fsync=off"]);
const stop = () => services.stop();
process.on("exit", stop);
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(130));

/**
 * Each of these processes runs one test file after the other, and half of that time it waits; so there is one more
 * than cores. The times in tests/timings.json let long files begin early; `npm test -- --update-timings` takes them
 * again. Loading the service anew for each file would cost minutes.
 */
const workers = Math.min(availableParallelism() + 1, 4);
/** On a busy machine something always comes late: what fails is tried once more, and what fails twice is wrong. */
const RETRIES = 1;
const flags = [
  "--timeout=60000",
  `--retry=${RETRIES}`,
  `--parallel=${workers}`,
  "--no-isolate",
  "--timings=tests/timings.json",
];
const child = Bun.spawn([process.execPath, "test", ...flags, ...process.argv.slice(2)], {
  env: { ...process.env, ...services.env, BUN_CONFIG_MAX_HTTP_REQUESTS: "65336" },
  stdout: "inherit",
  stderr: "pipe",
});

/** How much of each failure, and how many of them, are repeated at the end. */
const REPEATED_LINES_MAX = 60;
const REPEATED_MAX = 20;

/** What a long run says about its failures scrolls away; it is kept to be said once more at the end. */
class Failures {
  readonly told: string[][] = [];
  /** Lines since the last test ended: what a failing one says comes before its verdict. */
  #block: string[] = [];
  /** Lines that still belong to an error outside of every test. */
  #left = 0;

  /** The runner's own list of failed tests, without what they said, comes last. */
  #isOver = false;

  read(line: string): void {
    this.#isOver ||= /^\d+ tests? failed:/.test(line);
    if (this.#isOver) return;
    if (this.#left > 0) {
      this.told.at(-1)?.push(line);
      this.#left--;
    } else if (line.includes("Unhandled error")) {
      this.told.push([line]);
      this.#left = REPEATED_LINES_MAX;
    }
    this.#block.push(line);
    if (/^\(fail\)/.test(line)) this.told.push(this.#block.slice(-REPEATED_LINES_MAX));
    if (/^\((pass|fail|skip)\)/.test(line)) this.#block = [];
  }
}

// bun test reports on stderr; it is passed on as it comes and read for the failures and the closing counts.
const counts = { pass: 0, fail: 0, skip: 0 };
const failures = new Failures();
const secondAttempts: string[] = [];
const decoder = new TextDecoder();
let rest = "";
for await (const chunk of child.stderr) {
  process.stderr.write(chunk);
  rest += decoder.decode(chunk, { stream: true });
  const lines = rest.split("\n");
  rest = lines.pop() ?? "";
  for (const line of lines) {
    const plain = Bun.stripANSI(line);
    failures.read(plain);
    if (/^\(pass\).*\(attempt \d+\)/.test(plain)) secondAttempts.push(plain);
    const match = /^\s*(\d+) (pass|fail|skip)\s*$/.exec(plain);
    if (match) counts[match[2] as keyof typeof counts] = Number(match[1]);
  }
}
const code = await child.exited;
for (const lines of failures.told.slice(0, REPEATED_MAX))
  console.log(`\n--- once more:\n${lines.join("\n")}`);
for (const line of secondAttempts) console.log(`passed at the second attempt: ${line}`);
for (const what of services.missing) console.log(`skipped for want of ${what}`);
const failed = counts.fail > 0 ? counts.fail : code === 0 ? 0 : 1;
if (counts.skip) console.log(`${counts.skip} skipped`);
console.log(`${counts.pass} passed, ${failed} failed`);
process.exit(code !== 0 || counts.pass === 0 ? 1 : 0);
