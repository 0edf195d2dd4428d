/** The tools that are measured, and how each one is asked for the same thing. */
import { join } from "node:path";
import type { CommandLine, McpClient, ToolReply } from "./mcp-client.ts";

export const chromiumPath = process.env.TEST_CHROMIUM ?? Bun.which("chromium") ?? "/usr/bin/chromium";
const root = join(import.meta.dir, "../..");
export const installDir = join(root, ".cache/bench-browser");

export const packages = ["@playwright/mcp@0.0.83", "chrome-devtools-mcp@1.11.0", "agent-browser@0.41.0"];

export interface Contestant {
  name: string;
  /** The command line of a fresh one. */
  start: () => CommandLine;
  navigate(client: McpClient, url: string, timeoutMs?: number): Promise<ToolReply>;
  snapshot(client: McpClient, timeoutMs?: number): Promise<ToolReply>;
  /** A look at only what holds a text, where the tool has one. */
  find?(client: McpClient, text: string): Promise<ToolReply>;
  click(client: McpClient, ref: string): Promise<ToolReply>;
  type(client: McpClient, ref: string, text: string): Promise<ToolReply>;
  evaluate(client: McpClient, code: string): Promise<ToolReply>;
  /** The reference that a snapshot gives to the element on a line. */
  refPattern: RegExp;
}

const bin = (name: string) => join(installDir, "node_modules/.bin", name);

const ours = (name: string, start: CommandLine): Contestant => ({
  name,
  start: () => ({
    ...start,
    env: { BROWSER_CHROMIUM_PATH: chromiumPath, BROWSER_BACKEND: "chromium" },
  }),
  navigate: (client, url, timeoutMs) => client.call("browser_navigate", { url }, timeoutMs),
  snapshot: (client, timeoutMs) => client.call("browser_snapshot", {}, timeoutMs),
  find: (client, text) => client.call("browser_snapshot", { find: text }),
  click: (client, target) => client.call("browser_click", { element: "it", target }),
  type: (client, target, text) => client.call("browser_type", { element: "it", target, text }),
  evaluate: (client, code) => client.call("browser_evaluate", { function: code }),
  refPattern: /\[ref=(\w+)\]/,
});

const playwright: Contestant = {
  ...ours("playwright-mcp", {
    command: "node",
    args: [
      bin("playwright-mcp"),
      "--headless",
      "--isolated",
      "--no-sandbox",
      "--executable-path",
      chromiumPath,
    ],
  }),
  find: (client, text) => client.call("browser_find", { text }),
};

const devtools: Contestant = {
  name: "chrome-devtools-mcp",
  start: () => ({
    command: "node",
    args: [
      bin("chrome-devtools-mcp"),
      "--headless",
      "--isolated",
      "--executablePath",
      chromiumPath,
      "--chromeArg=--no-sandbox",
    ],
    env: { CI: "1" },
  }),
  navigate: (client, url, timeoutMs) =>
    client.call("navigate_page", { pageId: 1, type: "url", url, timeout: timeoutMs }, timeoutMs),
  snapshot: (client, timeoutMs) => client.call("take_snapshot", { pageId: 1 }, timeoutMs),
  click: (client, uid) => client.call("click", { pageId: 1, uid }),
  type: (client, uid, value) => client.call("fill", { pageId: 1, uid, value }),
  evaluate: (client, code) => client.call("evaluate_script", { pageId: 1, function: code }),
  refPattern: /uid=(\w+)/,
};

let sessions = 0;
const agentBrowser: Contestant = {
  name: "agent-browser",
  start: () => ({
    command: bin("agent-browser"),
    args: ["mcp"],
    env: {
      AGENT_BROWSER_EXECUTABLE_PATH: chromiumPath,
      AGENT_BROWSER_ARGS: "--no-sandbox",
      // Its daemon outlives the client; without a session of its own the next start would find it running.
      AGENT_BROWSER_SESSION: `bench-${process.pid}-${sessions++}`,
    },
  }),
  navigate: (client, url, timeoutMs) => client.call("agent_browser_open", { url }, timeoutMs),
  snapshot: (client, timeoutMs) => client.call("agent_browser_snapshot", {}, timeoutMs),
  click: (client, ref) => client.call("agent_browser_click", { selector: `@${ref}` }),
  type: (client, ref, text) => client.call("agent_browser_fill", { selector: `@${ref}`, text }),
  evaluate: (client, code) => client.call("agent_browser_eval", { script: `(${code})()` }),
  refPattern: /\[ref=(\w+)\]|ref=(e\d+)/,
};

export function contestants(compiled: string | null): Contestant[] {
  const source = { command: process.execPath, args: [join(root, "packages/browser/src/cli.ts"), "mcp"] };
  const all = [
    ours("browser-tool (source)", source),
    ...(compiled ? [ours("browser-tool", { command: compiled, args: ["mcp"] })] : []),
    playwright,
    devtools,
    agentBrowser,
  ];
  return all.map((each) => ({ ...each, start: () => ({ ...each.start(), cwd: installDir }) }));
}
