/** The smallest MCP client over stdio that can time a call. */
import { type ChildProcess, spawn } from "node:child_process";
import { pathToFileURL } from "node:url";

export interface ToolReply {
  isError: boolean;
  text: string;
}

interface Reply {
  id?: number;
  /** Of a question that the tool asks its client. */
  method?: string;
  result?: { content?: { type: string; text?: string }[]; isError?: boolean };
  error?: { message: string };
}

export interface CommandLine {
  command: string;
  args: string[];
  env?: Record<string, string>;
  /** Some of them write files where they are started. */
  cwd?: string;
}

export class McpClient {
  readonly child: ChildProcess;
  /** Found in the environment of everything that this tool starts. */
  readonly mark = `BENCH_MARK=${crypto.randomUUID()}`;
  /** The folder that the client works in. Some tools take files only from there. */
  readonly #root: string;
  #nextId = 1;
  readonly #waiting = new Map<number, (reply: Reply, bytes: number) => void>();

  constructor({ command, args, env, cwd }: CommandLine) {
    this.#root = cwd ?? process.cwd();
    this.child = spawn(command, args, {
      stdio: ["pipe", "pipe", "ignore"],
      cwd,
      env: { ...process.env, ...env, BENCH_MARK: this.mark.slice(this.mark.indexOf("=") + 1) },
    });
    const parts: string[] = [];
    this.child.stdout!.setEncoding("utf8");
    this.child.stdout!.on("data", (chunk: string) => {
      const lines = chunk.split("\n");
      parts.push(lines.shift()!);
      for (const next of lines) {
        this.#receive(parts.join(""));
        parts.length = 0;
        parts.push(next);
      }
    });
    this.child.stdin!.on("error", () => {});
  }

  #receive(line: string): void {
    if (!line.trim()) return;
    const reply = JSON.parse(line) as Reply;
    if (reply.method !== undefined) this.#answer(reply);
    else if (reply.id !== undefined) this.#waiting.get(reply.id)?.(reply, line.length);
  }

  #answer({ id, method }: Reply): void {
    if (id === undefined) return;
    const roots = [{ uri: pathToFileURL(this.#root).href, name: "bench" }];
    this.#write({ id, result: method === "roots/list" ? { roots } : {} });
  }

  #write(message: object): void {
    this.child.stdin!.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  request(method: string, params: object, timeoutMs: number): Promise<{ reply: Reply; bytes: number }> {
    const id = this.#nextId++;
    this.#write({ id, method, params });
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Error(`${method} took longer than ${timeoutMs} ms`)),
        timeoutMs,
      );
      this.#waiting.set(id, (reply, bytes) => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        resolve({ reply, bytes });
      });
    });
  }

  async initialize(): Promise<void> {
    const clientInfo = { name: "bench", version: "1" };
    const capabilities = { roots: {} };
    await this.request("initialize", { protocolVersion: "2025-06-18", capabilities, clientInfo }, 60_000);
    this.#write({ method: "notifications/initialized" });
  }

  async call(name: string, args: object, timeoutMs = 60_000): Promise<ToolReply> {
    const { reply } = await this.request("tools/call", { name, arguments: args }, timeoutMs);
    const text = (reply.result?.content ?? []).map((part) => part.text ?? "").join("\n");
    return {
      isError: reply.error !== undefined || reply.result?.isError === true,
      text: text || (reply.error?.message ?? ""),
    };
  }
}
