import { expect, test } from "bun:test";
import { failure } from "@model-gateway/testing/failure.ts";
import { runAfterStart } from "../src/supervise/after-start.ts";

const run = (script: string, onRunning: (line: string) => void = () => undefined) =>
  runAfterStart({
    command: ["sh", "-c", script],
    env: { PATH: process.env.PATH ?? "" },
    timeoutMs: 30_000,
    signal: new AbortController().signal,
    onRunning,
  });

test("a command that rewrites one line of progress for megabytes is followed to its end", async () => {
  const seen = new Set<string>();
  await run("yes 'pulling 42%' | head -n 200000 | tr '\\n' '\\r'; printf 'verified'", (line) =>
    seen.add(line),
  );
  expect([...seen]).toEqual(["pulling 42%", "verified"]);
});

test("one long line is cut, not the command", async () => {
  let last = "";
  await run("head -c 3000000 /dev/zero | tr '\\0' 'x'; echo; echo done", (line) => {
    last = line;
  });
  expect(last).toBe("done");
});

test("a command that fails is told with its last words", async () => {
  expect(await failure(run("echo 'no such model' >&2; exit 3"))).toMatchObject({
    message: expect.stringContaining("failed (code 3): no such model"),
  });
});
