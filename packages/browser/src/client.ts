/** The commands of the command line: each is a call of a tool, in a server that the first one starts and leaves running. */
import { spawn } from "node:child_process";
import { lstatSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type ParseArgsOptionsConfig, parseArgs } from "node:util";
import { ToolError } from "./errors.ts";
import type { ToolResult } from "./mcp/present.ts";
import { withLock } from "./resolve/lock.ts";
import skill from "./skill.txt" with { type: "text" };

const startMsMax = 20_000;
const idleMinutes = "30";

interface Command {
  tool: string;
  /** What stands without a name, in this order; the last one takes all the rest. */
  operands: string[];
  toInput?: (input: Record<string, unknown>, operands: string[]) => Record<string, unknown>;
}

const asFields = (_: unknown, pairs: string[]) => ({
  fields: pairs.map((pair) => {
    const at = pair.indexOf("=", pair.startsWith("[") ? pair.indexOf("]") : 0);
    if (at < 1) throw new ToolError("invalid_request", `fill takes target=text, not "${pair}".`);
    return { target: pair.slice(0, at), text: pair.slice(at + 1) };
  }),
});

export const commands: Record<string, Command> = {
  open: { tool: "browser_navigate", operands: ["url"] },
  back: { tool: "browser_navigate_back", operands: [] },
  snapshot: { tool: "browser_snapshot", operands: ["target"] },
  find: { tool: "browser_snapshot", operands: ["find"] },
  wait: {
    tool: "browser_snapshot",
    operands: ["text"],
    toInput: ({ text, ...input }) => ({ since: true, waitFor: { text }, ...input }),
  },
  network: {
    tool: "browser_snapshot",
    operands: ["network"],
    toInput: (input) => ({ network: "", ...input }),
  },
  click: { tool: "browser_click", operands: ["target"] },
  type: { tool: "browser_type", operands: ["target", "text"] },
  fill: { tool: "browser_type", operands: ["fields"], toInput: asFields },
  press: { tool: "browser_press_key", operands: ["key"] },
  eval: { tool: "browser_evaluate", operands: ["function"] },
  shot: { tool: "browser_screenshot", operands: ["file"] },
  console: { tool: "browser_console_messages", operands: [] },
  resize: { tool: "browser_resize", operands: ["width", "height"] },
  close: { tool: "browser_snapshot", operands: [], toInput: (input) => ({ ...input, close: "session" }) },
  skill: { tool: "", operands: [] },
};

interface Server {
  url: string;
  token: string;
  pid: number;
}

/** A folder that only this user can read: whoever has the token drives the browser. */
function serverDir(): string {
  const uid = process.getuid?.() ?? 0;
  const dir = join(process.env.XDG_RUNTIME_DIR || tmpdir(), `browser-tool-${uid}`);
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const { uid: owner, mode } = lstatSync(dir);
  if (process.platform !== "win32" && (owner !== uid || (mode & 0o077) !== 0))
    throw new ToolError("forbidden", `${dir} is open to others. Delete it, or set XDG_RUNTIME_DIR.`);
  return dir;
}

const headersFor = ({ token }: Server) => ({
  authorization: `Bearer ${token}`,
  "content-type": "application/json",
});

/** The server that was left running; null where it is gone. */
async function runningServer(file: string): Promise<Server | null> {
  try {
    const server = JSON.parse(readFileSync(file, "utf8")) as Server;
    const { ok } = await fetch(`${server.url}/health`, { headers: headersFor(server) });
    return ok ? server : null;
  } catch {
    return null;
  }
}

async function startServer(dir: string, serverArgs: string[]): Promise<Server> {
  const isCompiled = /^(\/\$bunfs\/|[a-z]:[\\/]~BUN[\\/])/i.test(Bun.main);
  const token = crypto.randomUUID();
  const log = join(dir, "server.log");
  const output = openSync(log, "w", 0o600);
  const args = ["debug", "--port", "0", "--keep-running", "--idle", idleMinutes, ...serverArgs];
  const child = spawn(process.execPath, [...(isCompiled ? [] : [Bun.main]), ...args], {
    stdio: ["ignore", output, output],
    detached: true,
    env: { ...process.env, BROWSER_TOKEN: token },
  });
  child.unref();
  const endsAtMs = performance.now() + startMsMax;
  while (child.exitCode === null && performance.now() < endsAtMs) {
    const url = /debug server on (\S+)/.exec(readFileSync(log, "utf8"))?.[1];
    if (url) return { url, token, pid: child.pid! };
    await Bun.sleep(20);
  }
  throw new ToolError("browser_unavailable", `The server did not start: ${readFileSync(log, "utf8").trim()}`);
}

async function findServer(serverArgs: string[]): Promise<Server> {
  const dir = serverDir();
  const file = join(dir, "server.json");
  return withLock(join(dir, "server.lock"), { timeoutMs: startMsMax }, async () => {
    const running = await runningServer(file);
    if (running && serverArgs.length > 0)
      throw new ToolError(
        "invalid_request",
        `${serverArgs[0]} counts when the browser starts, and it runs already: browser-tool close first.`,
      );
    if (running) return running;
    const server = await startServer(dir, serverArgs);
    writeFileSync(file, JSON.stringify(server), { mode: 0o600 });
    return server;
  });
}

async function endServer(): Promise<string> {
  const file = join(serverDir(), "server.json");
  const server = await runningServer(file);
  rmSync(file, { force: true });
  if (!server) return "No browser is open.";
  process.kill(server.pid, "SIGTERM");
  return "The browser is closed.";
}

interface Property {
  type?: string;
}

/** A tool's own fields as options: --full-page or --fullPage. Lists and objects are JSON. */
async function readInput(command: Command, args: string[], serverOptions: ParseArgsOptionsConfig) {
  const { listTools } = await import("./mcp/tools.ts");
  const tool = listTools().find(({ name }) => name === command.tool)!;
  const { properties } = tool.inputSchema as unknown as { properties: Record<string, Property> };
  const dashed = (name: string) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  const own = Object.entries(properties).flatMap(([name, { type }]) =>
    [name, dashed(name)].map((each) => [each, { type: type === "boolean" ? "boolean" : "string" }] as const),
  );
  const { tokens, positionals } = parseArgs({
    args,
    allowPositionals: true,
    tokens: true,
    options: { ...serverOptions, ...Object.fromEntries(own) } as ParseArgsOptionsConfig,
  });
  const parsed = (name: string, text: string): unknown => {
    const { type } = properties[name] ?? {};
    if (type === "number") return Number(text);
    return type === "array" || type === "object" ? JSON.parse(text) : text;
  };
  const input: Record<string, unknown> = {};
  const serverArgs: string[] = [];
  for (const token of tokens) {
    if (token.kind !== "option") continue;
    const name = Object.keys(properties).find((each) => [each, dashed(each)].includes(token.name));
    if (name) input[name] = token.value === undefined ? true : parsed(name, token.value);
    else serverArgs.push(`--${token.name}`, ...(token.value === undefined ? [] : [token.value]));
  }
  const { operands } = command;
  operands.forEach((name, index) => {
    const isLast = index === operands.length - 1;
    const text = isLast ? positionals.slice(index).join(" ") : positionals[index];
    if (text) input[name] = parsed(command.toInput === asFields ? "" : name, text);
  });
  return { input: command.toInput?.(input, positionals) ?? input, serverArgs };
}

/** Returns the exit code: 1 when the tool says that it failed. */
export async function runCommand(
  name: string,
  args: string[],
  serverOptions: ParseArgsOptionsConfig,
): Promise<number> {
  const command = commands[name]!;
  if (name === "skill") {
    console.log(skill.trim());
    return 0;
  }
  const { input, serverArgs } = await readInput(command, args, serverOptions);
  if (name === "close" && input.session === undefined) {
    console.log(await endServer());
    return 0;
  }
  const { file, ...toolInput } = input;
  const server = await findServer(serverArgs);
  const response = await fetch(`${server.url}/tools/${command.tool}`, {
    method: "POST",
    headers: headersFor(server),
    body: JSON.stringify(toolInput),
    // The tool has its own deadlines.
    timeout: false,
  } as RequestInit);
  const { content, isError } = (await response.json()) as ToolResult;
  for (const part of content) {
    if (part.type === "text") console.log(part.text);
    else {
      const kind = part.mimeType.split("/")[1];
      const path = resolve(typeof file === "string" ? file : join(serverDir(), `shot-${Date.now()}.${kind}`));
      writeFileSync(path, Buffer.from(part.data, "base64"));
      console.log(`The picture is in ${path}`);
    }
  }
  return isError ? 1 : 0;
}
