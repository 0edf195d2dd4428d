/** The tools that are measured, and how each one is asked for the same thing. */
import { join } from "node:path";
import type { CommandLine, McpClient, ToolReply } from "./mcp-client.ts";

export const chromiumPath = process.env.TEST_CHROMIUM ?? Bun.which("chromium") ?? "/usr/bin/chromium";
const root = join(import.meta.dir, "../..");
export const installDir = join(root, ".cache/bench-browser");

export const packages = ["@playwright/mcp@0.0.83", "chrome-devtools-mcp@1.11.0", "agent-browser@0.41.0"];

/** What the tasks on an application ask for beside clicks and typing; several replies where it takes several calls. */
export interface Deeds {
  hover(client: McpClient, ref: string): Promise<ToolReply>;
  drag(client: McpClient, ref: string, to: string): Promise<ToolReply>;
  select(client: McpClient, ref: string, option: string): Promise<ToolReply>;
  fill(client: McpClient, fields: { name: string; ref: string; text: string }[]): Promise<ToolReply>;
  press(client: McpClient, key: string): Promise<ToolReply>;
  console(client: McpClient): Promise<ToolReply>;
  waitFor(client: McpClient, text: string): Promise<ToolReply>;
  upload(client: McpClient, ref: string, file: string): Promise<ToolReply[]>;
  /** A click that opens a dialog, which is accepted with this text. */
  answer(client: McpClient, ref: string, text: string): Promise<ToolReply[]>;
  failedRequest(client: McpClient, address: string): Promise<ToolReply[]>;
  toNewWindow(client: McpClient): Promise<ToolReply[]>;
  closeWindow(client: McpClient): Promise<unknown>;
}

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
  /** Absent: it is not given the tasks on an application. */
  deeds?: Deeds;
}

const uploadsDir = join(installDir, "files");
const fileAt = (name: string) => join(uploadsDir, name);

/** Writes the files that are uploaded. */
export async function makeFiles(): Promise<void> {
  await Bun.write(fileAt("prices.txt"), "tea 3 EUR\n.");
}

/** The list of requests to an address, then all of the last one in it. */
async function lastOf(
  list: ToolReply,
  pattern: RegExp,
  whole: (id: string) => Promise<ToolReply>,
): Promise<ToolReply[]> {
  const id = [...list.text.matchAll(pattern)].at(-1)?.[1];
  return id === undefined ? [list] : [list, await whole(id)];
}

const ownDeeds: Deeds = {
  hover: (client, target) => client.call("browser_click", { target, action: "hover" }),
  drag: (client, target, to) => client.call("browser_click", { target, dragTo: { target: to } }),
  select: (client, target, text) => client.call("browser_type", { target, text }),
  fill: (client, fields) =>
    client.call("browser_type", { fields: fields.map(({ ref, text }) => ({ target: ref, text })) }),
  press: (client, key) => client.call("browser_press_key", { key }),
  console: (client) => client.call("browser_console_messages", { level: "error" }),
  waitFor: (client, text) => client.call("browser_snapshot", { waitFor: { text }, find: text }),
  upload: async (client, target, file) => [
    await client.call("browser_type", { target, files: [fileAt(file)] }),
  ],
  answer: async (client, target, promptText) => [
    await client.call("browser_click", { target, dialog: { accept: true, promptText } }),
  ],
  failedRequest: async (client, address) =>
    lastOf(await client.call("browser_snapshot", { network: address }), /\b(r\d+)\b/g, (network) =>
      client.call("browser_snapshot", { network }),
    ),
  toNewWindow: async () => [],
  closeWindow: (client) => client.call("browser_snapshot", { close: "page" }),
};

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
  deeds: ownDeeds,
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
  deeds: {
    hover: (client, target) => client.call("browser_hover", { element: "it", target }),
    drag: (client, startTarget, endTarget) =>
      client.call("browser_drag", { startElement: "it", startTarget, endElement: "there", endTarget }),
    select: (client, target, option) =>
      client.call("browser_select_option", { element: "it", target, values: [option] }),
    fill: (client, fields) =>
      client.call("browser_fill_form", {
        fields: fields.map(({ name, ref, text }) => ({ name, type: "textbox", target: ref, value: text })),
      }),
    press: (client, key) => client.call("browser_press_key", { key }),
    console: (client) => client.call("browser_console_messages", { level: "error" }),
    waitFor: (client, text) => client.call("browser_wait_for", { text }),
    upload: async (client, target, file) => [
      await client.call("browser_click", { element: "it", target }),
      await client.call("browser_file_upload", { paths: [fileAt(file)] }),
    ],
    answer: async (client, target, promptText) => [
      await client.call("browser_click", { element: "it", target }),
      await client.call("browser_handle_dialog", { accept: true, promptText }),
    ],
    failedRequest: async (client, address) =>
      lastOf(
        await client.call("browser_network_requests", { static: false, filter: address }),
        /^(\d+)\./gm,
        (index) => client.call("browser_network_request", { index: Number(index), part: "response-body" }),
      ),
    toNewWindow: async (client) => [await client.call("browser_tabs", { action: "select", index: 1 })],
    closeWindow: (client) => client.call("browser_tabs", { action: "close", index: 1 }),
  },
};

/** The tab that chrome-devtools-mcp is told to work in. */
let pageId = 1;

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
    client.call("navigate_page", { pageId, type: "url", url, timeout: timeoutMs }, timeoutMs),
  snapshot: (client, timeoutMs) => client.call("take_snapshot", { pageId }, timeoutMs),
  click: (client, uid) => client.call("click", { pageId, uid }),
  type: (client, uid, value) => client.call("fill", { pageId, uid, value }),
  evaluate: (client, code) => client.call("evaluate_script", { pageId, function: code }),
  refPattern: /uid=(\w+)/,
  deeds: {
    hover: (client, uid) => client.call("hover", { pageId, uid }),
    drag: (client, from_uid, to_uid) => client.call("drag", { pageId, from_uid, to_uid }),
    select: (client, uid, value) => client.call("fill", { pageId, uid, value }),
    fill: (client, fields) =>
      client.call("fill_form", {
        pageId,
        elements: fields.map(({ ref, text }) => ({ uid: ref, value: text })),
      }),
    press: (client, key) => client.call("press_key", { pageId, key }),
    console: (client) => client.call("list_console_messages", { pageId, types: ["error"] }),
    waitFor: (client, text) => client.call("wait_for", { pageId, text: [text], timeout: 5_000 }),
    upload: async (client, uid, file) => [
      await client.call("upload_file", { pageId, uid, filePaths: [fileAt(file)] }),
    ],
    answer: async (client, uid, promptText) => [
      await client.call("click", { pageId, uid }),
      await client.call("handle_dialog", { pageId, action: "accept", promptText }),
    ],
    failedRequest: async (client) =>
      lastOf(
        await client.call("list_network_requests", { pageId, resourceTypes: ["fetch", "xhr"] }),
        /reqid=(\d+)/g,
        (reqid) => client.call("get_network_request", { pageId, reqid: Number(reqid) }),
      ),
    toNewWindow: async (client) => {
      const pages = await client.call("list_pages", {});
      pageId = 2;
      return [pages];
    },
    closeWindow: async (client) => {
      await client.call("close_page", { pageId });
      pageId = 1;
    },
  },
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
  const args = ["mcp", "--uploads", uploadsDir];
  const source = { command: process.execPath, args: [join(root, "packages/browser/src/cli.ts"), ...args] };
  const all = [
    ours("browser-tool (source)", source),
    ...(compiled ? [ours("browser-tool", { command: compiled, args })] : []),
    playwright,
    devtools,
    agentBrowser,
  ];
  return all.map((each) => ({ ...each, start: () => ({ ...each.start(), cwd: installDir }) }));
}
