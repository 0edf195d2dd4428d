import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onEachEngine } from "./engines.ts";
import { startTool, until } from "./helpers.ts";

const root = join(import.meta.dir, "../../..");
const cli = join(import.meta.dir, "../src/cli.ts");

/** Processes of the browser in whose command line or surroundings the folder of this test's profiles stands. */
function processesOf(dir: string): number[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const command = readFileSync(`/proc/${name}/cmdline`, "utf8");
      const isWebkit = /webkit|Xvfb/i.test(command.split("\0")[0]!);
      const surroundings = isWebkit ? readFileSync(`/proc/${name}/environ`, "utf8") : "";
      return (command + surroundings).includes(dir) ? [Number(name)] : [];
    } catch {
      return [];
    }
  });
}

onEachEngine("however it ends, nothing is left", (engine) => {
  let home: string;
  beforeAll(() => {
    home = mkdtempSync(join(tmpdir(), "orphans-test-"));
  });
  const children: ChildProcess[] = [];
  afterAll(() => {
    for (const child of children) child.kill("SIGKILL");
    rmSync(home, { recursive: true, force: true });
  });

  const env = (temporary = home) => ({ ...engine.env, TMPDIR: temporary });

  const childrenOf = (pid: number) =>
    readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);

  async function startedBy(
    command: string,
    args: string[],
    isUsed = true,
  ): Promise<{ child: ChildProcess; url: string }> {
    const child = spawn(command, args, {
      cwd: root,
      env: env(),
      stdio: ["ignore", "pipe", "ignore"],
      detached: true,
    });
    children.push(child);
    let output = "";
    child.stdout!.on("data", (chunk: Buffer) => {
      output += chunk.toString();
    });
    await until("the server is up", () => /http:\/\/127\.0\.0\.1:\d+/.test(output), 60_000);
    const url = /http:\/\/127\.0\.0\.1:\d+/.exec(output)![0];
    if (!isUsed) return { child, url };
    const answer = await fetch(`${url}/evaluate`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ expression: "1 + 1" }),
    });
    expect(answer.status).toBe(200);
    expect(processesOf(home).length).toBeGreaterThan(1);
    expect(readdirSync(home)).toHaveLength(1);
    return { child, url };
  }

  async function nothingLeft(url: string): Promise<void> {
    await until("no browser process is left", () => processesOf(home).length === 0);
    await until("no profile is left", () => readdirSync(home).length === 0);
    await until("the tool is gone", () =>
      fetch(`${url}/health`).then(
        () => false,
        () => true,
      ),
    );
  }

  test("SIGKILL of the tool", async () => {
    const { child, url } = await startedBy(process.execPath, [cli, "debug", "--port", "0"]);
    child.kill("SIGKILL");
    await nothingLeft(url);
  }, 90_000);

  test("SIGKILL of the whole process group of the tool", async () => {
    const { child, url } = await startedBy(process.execPath, [cli, "debug", "--port", "0"]);
    process.kill(-child.pid!, "SIGKILL");
    await nothingLeft(url);
  }, 90_000);

  test("SIGKILL of its parent", async () => {
    const start = `require("node:child_process").spawn(${JSON.stringify(process.execPath)}, [${JSON.stringify(cli)}, "debug", "--port", "0"], { stdio: "inherit" }); setInterval(() => {}, 1e9)`;
    const { child, url } = await startedBy(process.execPath, ["-e", start]);
    child.kill("SIGKILL");
    await nothingLeft(url);
  }, 90_000);

  test("SIGKILL of npm", async () => {
    const { child, url } = await startedBy("npm", [
      "run",
      "--silent",
      "browser",
      "--",
      "debug",
      "--port",
      "0",
    ]);
    child.kill("SIGKILL");
    await nothingLeft(url);
  }, 90_000);

  test("SIGKILL of npm and of the shell above it", async () => {
    const command = "npm run --silent browser -- debug --port 0; true";
    const { child, url } = await startedBy("sh", ["-c", command]);
    const npm = childrenOf(child.pid!);
    expect(npm).toHaveLength(1);
    child.kill("SIGKILL");
    process.kill(npm[0]!, "SIGKILL");
    await nothingLeft(url);
  }, 90_000);

  test("SIGKILL of its parent while the browser is starting", async () => {
    const start = `require("node:child_process").spawn(${JSON.stringify(process.execPath)}, [${JSON.stringify(cli)}, "debug", "--port", "0"], { stdio: "inherit" }); setInterval(() => {}, 1e9)`;
    const { child, url } = await startedBy(process.execPath, ["-e", start], false);
    fetch(`${url}/evaluate`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ expression: "1" }),
    }).catch(() => {});
    await until("the browser is being started", () => processesOf(home).length > 0);
    child.kill("SIGKILL");
    await nothingLeft(url);
  }, 90_000);

  test("a temporary folder with a long path", async () => {
    const deep = join(home, "a-folder-with-a-name-that-is-long-".repeat(4), "and-another-one-inside-of-it");
    mkdirSync(deep, { recursive: true });
    const tool = startTool({ engine, env: env(deep) });
    const before = process.env.TMPDIR;
    process.env.TMPDIR = deep;
    try {
      expect(await tool.evaluate("1 + 1")).toBe(2);
      expect(readdirSync(deep)).toHaveLength(1);
    } finally {
      if (before === undefined) delete process.env.TMPDIR;
      else process.env.TMPDIR = before;
      await tool.stop();
    }
    expect(readdirSync(deep)).toEqual([]);
    rmSync(join(home, "a-folder-with-a-name-that-is-long-".repeat(4)), { recursive: true });
  });

  test("SIGTERM ends it in order", async () => {
    const { child, url } = await startedBy(process.execPath, [cli, "debug", "--port", "0"]);
    child.kill("SIGTERM");
    await nothingLeft(url);
    await until("it exited", () => child.exitCode !== null);
    expect(child.exitCode).toBe(0);
  }, 90_000);

  test("an MCP client that goes away takes everything with it", async () => {
    const child = spawn(process.execPath, [cli, "mcp"], { env: env(), stdio: ["pipe", "pipe", "ignore"] });
    const send = (message: object) =>
      child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
    let output = "";
    child.stdout.on("data", (chunk: Buffer) => {
      output += chunk.toString();
    });
    const clientInfo = { name: "test", version: "1" };
    send({
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo },
    });
    send({ method: "notifications/initialized" });
    send({ id: 2, method: "tools/call", params: { name: "browser_evaluate", arguments: { function: "1" } } });
    await until("the tool answered", () => output.includes('"id":2'), 60_000);
    expect(processesOf(home).length).toBeGreaterThan(1);
    child.stdin.end();
    await until("it exited", () => child.exitCode !== null);
    await until("nothing is left", () => processesOf(home).length === 0 && readdirSync(home).length === 0);
  }, 90_000);
});
