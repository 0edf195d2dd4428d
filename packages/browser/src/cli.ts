#!/usr/bin/env bun
/** The command line: reads the arguments, and cleans up on every kind of exit. */
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { ToolError } from "./errors.ts";
import { watchLaunchingProcesses } from "./launch/ancestors.ts";
import { whyNoSandbox } from "./launch/launch.ts";
import { noSecrets, Secrets } from "./policy/secrets.ts";
import { readBackend } from "./resolve/settings.ts";
import { Session, type SessionOptions, sessionDefaults } from "./session.ts";
import { version } from "./version.ts";

const usage = `browser-tool ${version}

  browser-tool debug --port <port>   HTTP debug server on 127.0.0.1 (port 0: any free one)
  browser-tool mcp                   Model Context Protocol server on stdio
  browser-tool open <url>            and snapshot, click, type, fill, press, wait, find, network, eval, shot, console,
                                     back, resize, close: one step each, in a browser that stays open in between
  browser-tool skill                 how an agent uses these, to be put among its skills
  browser-tool doctor                which browser would be used and why, and what is missing
  browser-tool fetch [dir]           download the pinned browser now
  browser-tool deps <file>           shared libraries that a binary needs
  browser-tool bundle [dir]          copy the libraries of BROWSER_BUNDLE_LIBS and _MANIFEST, and report

Options
  --proxy <url>             http://, https:// or socks5:// proxy for the browser's traffic
  --backend <name>          auto, chrome, chromium, edge, webkit or servo (BROWSER_BACKEND)
  --headful                 show the browser's window
  --viewport <w>x<h>        default 1280x720
  --token <token>           debug: require Authorization: Bearer <token> (BROWSER_TOKEN)
  --dialogs <policy>        accept (default) or dismiss alert, confirm and prompt
  --downloads <dir>         keep downloads there; otherwise they go with the profile
  --profile <dir>           keep cookies and storage there, and stay signed in
  --attach <url>            use the Chrome that listens there (http://127.0.0.1:9222), and leave it running
  --state <file>            take cookies and storage from this file, and keep them there at the end
  --allow-host <host>       reach only these hosts, *.example.com for those below; may be given several times
  --block-host <host>       do not reach these hosts
  --secrets <file>          {"name": {"value", "hosts"}}: typed as {{secret:name}}, on these hosts only, and never shown
  --uploads <dir>           files in this folder may be given to pages; otherwise none
  --session-idle <minutes>  end a named session that is not used for so long, default 10
  --max-tokens <n>          upper bound of one result, default 8000
  --allow-file              open file: addresses
  --allow-link-local        open link-local and cloud metadata addresses
  --ignore-https-errors     accept any certificate on https pages
  --idle <minutes>          debug: end when nothing was asked for so long
  --keep-running            debug: outlive the process that started the tool
  --json                    doctor, fetch, deps, bundle: print JSON
  --version, -h, --help

BROWSER_URL is a page to open at the start. BROWSER_NO_SANDBOX=1 turns Chromium's sandbox off.
"browser-tool doctor" names the other BROWSER_ variables that are in effect.
`;

const options = {
  port: { type: "string" },
  proxy: { type: "string" },
  backend: { type: "string" },
  headful: { type: "boolean", default: false },
  viewport: { type: "string" },
  token: { type: "string" },
  dialogs: { type: "string", default: "accept" },
  downloads: { type: "string" },
  uploads: { type: "string" },
  profile: { type: "string" },
  attach: { type: "string" },
  state: { type: "string" },
  secrets: { type: "string" },
  "allow-host": { type: "string", multiple: true, default: [] as string[] },
  "block-host": { type: "string", multiple: true, default: [] as string[] },
  "session-idle": { type: "string" },
  "max-tokens": { type: "string" },
  "allow-file": { type: "boolean", default: false },
  "allow-link-local": { type: "boolean", default: false },
  "ignore-https-errors": { type: "boolean", default: false },
  idle: { type: "string" },
  "keep-running": { type: "boolean", default: false },
  json: { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
  version: { type: "boolean", default: false },
} as const;

const readArguments = (args: string[]) => parseArgs({ args, allowPositionals: true, options });

type Values = ReturnType<typeof readArguments>["values"];

function wrong(message: string): ToolError {
  return new ToolError("invalid_request", `${message} See browser-tool --help.`);
}

function wholeNumber(
  name: string,
  text: string | undefined,
  { min, max }: { min: number; max: number },
): number | null {
  if (text === undefined) return null;
  const value = Number(text);
  if (!Number.isInteger(value) || value < min || value > max)
    throw wrong(`--${name} must be a whole number from ${min} to ${max}, not "${text}".`);
  return value;
}

function readViewport(text: string | undefined): SessionOptions["viewport"] {
  if (text === undefined) return sessionDefaults.viewport;
  const match = /^(\d{2,5})x(\d{2,5})$/.exec(text);
  if (!match) throw wrong(`--viewport must look like 1280x720, not "${text}".`);
  return { width: Number(match[1]), height: Number(match[2]) };
}

function sessionOptions(values: Values, command: string): Partial<SessionOptions> {
  const { env } = process;
  const backend = readBackend(env, values.backend);
  if (values.dialogs !== "accept" && values.dialogs !== "dismiss")
    throw wrong(`--dialogs must be accept or dismiss, not "${values.dialogs}".`);
  const proxy = values.proxy ?? (command === "mcp" ? env.BROWSER_DOWNLOAD_PROXY : undefined);
  if (proxy && !/^(https?|socks5):\/\/[^\s]+$/.test(proxy))
    throw wrong(`The proxy must be an http://, https:// or socks5:// URL, not "${proxy}".`);
  return {
    backend,
    proxy: proxy || undefined,
    headful: values.headful,
    viewport: readViewport(values.viewport),
    dialogs: values.dialogs,
    downloadsDir: values.downloads ?? null,
    uploadsDir: values.uploads ? resolve(values.uploads) : null,
    startUrl: env.BROWSER_URL || sessionDefaults.startUrl,
    sessionIdleMs:
      (wholeNumber("session-idle", values["session-idle"], { min: 1, max: 10_000 }) ?? 10) * 60_000,
    tokensMax:
      wholeNumber("max-tokens", values["max-tokens"], { min: 500, max: 1_000_000 }) ??
      sessionDefaults.tokensMax,
    secrets: values.secrets ? Secrets.read(resolve(values.secrets)) : noSecrets,
    attachUrl: values.attach ?? null,
    state: values.state ? { path: resolve(values.state), key: env.BROWSER_STATE_KEY || null } : null,
    profileDir: values.profile ? resolve(values.profile) : null,
    urlPolicy: {
      allowFile: values["allow-file"],
      allowLinkLocal: values["allow-link-local"],
      allowHosts: values["allow-host"],
      blockHosts: values["block-host"],
    },
    ignoreHttpsErrors: values["ignore-https-errors"],
    env,
    onProgress: (text) => process.stderr.write(`${text}\n`),
  };
}

/** Printed at the start, where people see it; a foreign engine handles its own sandbox. */
function warnOfNoSandbox({ backend }: Partial<SessionOptions>): void {
  const reason = backend === "webkit" || backend === "servo" ? null : whyNoSandbox();
  if (reason)
    process.stderr.write(
      `browser-tool: Chromium runs without its sandbox, because ${reason}. A page that breaks out of the browser has all rights of this user; where pages are not trusted, run the tool as another user.\n`,
    );
}

/** Runs `end` once, on the first exit event. Returns what ends it too. */
function endWith(end: () => Promise<void>, keepRunning: boolean): () => void {
  let isEnding = false;
  const finish = () => {
    if (isEnding) return;
    isEnding = true;
    void end().finally(() => process.exit(0));
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, finish);
  if (!keepRunning) watchLaunchingProcesses(finish);
  return finish;
}

async function debug(values: Values): Promise<void> {
  const port = wholeNumber("port", values.port, { min: 0, max: 65_535 });
  if (port === null) throw wrong("debug needs --port <port>.");
  if (values.token === "") throw wrong("--token must not be empty; leave it out to need none.");
  // In the environment a token does not show up in `ps`.
  const token = values.token ?? (process.env.BROWSER_TOKEN || null);
  const options = sessionOptions(values, "debug");
  warnOfNoSandbox(options);
  const session = new Session(options);
  const { startDebugServer } = await import("./http/server.ts");
  const server = startDebugServer({ session, port, token });
  const end = endWith(async () => {
    await Promise.all([server.stop(), session.close()]);
  }, values["keep-running"]);
  const idleMs = (wholeNumber("idle", values.idle, { min: 1, max: 100_000 }) ?? 0) * 60_000;
  if (idleMs > 0)
    setInterval(() => {
      if (performance.now() - server.lastUsedMs > idleMs) end();
    }, idleMs / 10);
  console.log(`browser-tool debug server on ${server.url}`);
}

async function mcp(values: Values): Promise<void> {
  const options = sessionOptions(values, "mcp");
  warnOfNoSandbox(options);
  const session = new Session(options);
  const { serveMcp } = await import("./mcp/server.ts");
  const handle = serveMcp(session);
  const end = async () => {
    await Promise.all([handle.close(), session.close()]);
  };
  endWith(end, false);
  // The client closes our input when it is done with us, or when it dies.
  process.stdin.on("close", () => void end().finally(() => process.exit(0)));
}

async function main(): Promise<void> {
  const [first = "", ...rest] = process.argv.slice(2);
  // The servers start without loading the client.
  if (!/^(debug|mcp|-.*|)$/.test(first)) {
    const { commands, runCommand } = await import("./client.ts");
    if (first in commands) {
      process.exitCode = await runCommand(first, rest, options);
      return;
    }
  }
  const { values, positionals } = readArguments(process.argv.slice(2));
  const [command, operand] = positionals;
  if (values.version) return console.log(version);
  if (values.help || command === undefined) return console.log(usage);
  if (command === "debug") return debug(values);
  if (command === "mcp") return mcp(values);
  const { runSetupCommand, setupCommands } = await import("./setup-commands.ts");
  if (setupCommands.includes(command)) {
    process.exitCode = await runSetupCommand({
      command,
      operand,
      backend: values.backend,
      json: values.json,
    });
    return;
  }
  throw wrong(`Unknown command "${command}".`);
}

main().catch((error: Error) => {
  process.stderr.write(`browser-tool: ${error.message}\n`);
  process.exit(2);
});
