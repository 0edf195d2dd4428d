/** An MCP client over the stdio of a tool that runs in a process of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { testEnv } from "./helpers.ts";

const cli = join(import.meta.dir, "../src/cli.ts");

export interface Reply {
  // biome-ignore lint/suspicious/noExplicitAny: answers are asserted field by field.
  result?: any;
  error?: { code: number; message: string };
}

export class McpClient {
  readonly child: ChildProcess;
  #nextId = 1;
  #waiting = new Map<number, (reply: Reply) => void>();

  constructor(args: string[] = [], env: Record<string, string | undefined> = testEnv) {
    this.child = spawn(process.execPath, [cli, "mcp", ...args], {
      stdio: ["pipe", "pipe", "inherit"],
      env,
    });
    let rest = "";
    this.child.stdout!.on("data", (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const reply = JSON.parse(line) as Reply & { id?: number };
        if (reply.id !== undefined) this.#waiting.get(reply.id)?.(reply);
      }
    });
  }

  send(method: string, params: object = {}): Promise<Reply> {
    const id = this.#nextId++;
    this.child.stdin!.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    return new Promise((resolve) => this.#waiting.set(id, resolve));
  }

  async initialize(): Promise<Reply> {
    const reply = await this.send("initialize", {
      protocolVersion: "2025-06-18",
      capabilities: {},
      clientInfo: { name: "test", version: "1" },
    });
    this.child.stdin!.write(`${JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" })}\n`);
    return reply;
  }

  async call(
    name: string,
    args: object = {},
  ): Promise<{ text: string; isError: boolean; content: { type: string }[] }> {
    const { result, error } = await this.send("tools/call", { name, arguments: args });
    if (!result) throw new Error(error?.message);
    return { text: result.content[0].text, isError: result.isError === true, content: result.content };
  }

  async end(): Promise<void> {
    this.child.stdin!.end();
    if (this.child.exitCode === null) await once(this.child, "exit");
  }
}
