import { afterEach, expect, test } from "bun:test";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MAIN = join(import.meta.dir, "../../src/main.ts");
const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0).reverse()) await undo();
});

/** Starts the service as a newcomer does, and reads what it prints up to the command line to paste. */
async function startDemoProcess(dataDir: string) {
  const child = Bun.spawn([process.execPath, MAIN, "--demo"], {
    env: {
      PATH: process.env.PATH,
      SERVICE_PORT: "0",
      SERVICE_DATA_DIR: dataDir,
      SERVICE_DRAIN_GRACE_MS: "0",
      SERVICE_LOG_LEVEL: "error",
    },
    stdout: "pipe",
    stderr: "inherit",
  });
  cleanup.push(() => child.kill("SIGKILL"));
  const decoder = new TextDecoder();
  let printed = "";
  for await (const chunk of child.stdout) {
    printed += decoder.decode(chunk, { stream: true });
    if (/^curl .*\n/m.test(printed)) break;
  }
  const shown = (pattern: RegExp) => pattern.exec(printed)?.[1] ?? `not shown in: ${printed}`;
  return {
    child,
    curl: shown(/^(curl .*)$/m),
    key: shown(/API key\s+(\S+)/),
    password: shown(/password (\S+)/),
    url: shown(/listening on (\S+)/),
  };
}

/** Runs a command line as a shell would. */
async function paste(command: string): Promise<string> {
  const child = Bun.spawn(["sh", "-c", command], { stdout: "pipe", stderr: "ignore" });
  return new Response(child.stdout).text();
}

const contentOf = (stream: string): string =>
  [...stream.matchAll(/^data: (\{.*)$/gm)]
    .map(([, json]) => JSON.parse(json!).choices?.[0]?.delta?.content ?? "")
    .join("");

test("the printed line streams an answer, and a second run goes on with the same user, key and memory", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "demo-"));
  cleanup.push(() => rmSync(dataDir, { recursive: true, force: true }));
  const first = await startDemoProcess(dataDir);
  const stream = await paste(first.curl);
  expect(contentOf(stream)).toContain('You said: "Hello there, my cat is called Misty."');
  expect(stream).toEndWith("data: [DONE]\n\n");
  expect(statSync(join(dataDir, "demo", "demo-credentials.json")).mode & 0o777).toBe(0o600);
  first.child.kill("SIGTERM");
  expect(await first.child.exited).toBe(0);

  const second = await startDemoProcess(dataDir);
  expect({ key: second.key, password: second.password }).toEqual({
    key: first.key,
    password: first.password,
  });
  const question = second.curl.replace("Hello there, my cat is called Misty.", "What is the name of my cat?");
  expect(contentOf(await paste(question))).toContain("I remember: Hello there, my cat is called Misty.");
});
