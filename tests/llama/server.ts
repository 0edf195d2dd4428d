/** llama.cpp's own server with a tiny model, where `npm run llama -- build` has built it. */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@model-gateway/testing/services.ts";
import { until } from "@model-gateway/testing/until.ts";
import { tinyModel } from "./gguf.ts";

const program = process.env.TEST_LLAMA_SERVER ?? join(import.meta.dir, "../../.cache/llama/llama-server");
export const hasLlama = existsSync(program);
/** Chats that it serves at once. */
export const SLOTS = 2;
/** Tokens that each of them may have. */
export const CONTEXT = 512;

export class LlamaServer {
  readonly #dir = mkdtempSync(join(tmpdir(), "gateway-llama-"));
  #child: ChildProcess | null = null;
  #port = 0;

  constructor(
    /** Of its one model. */
    readonly alias: string,
    readonly flags: readonly string[] = [],
  ) {
    writeFileSync(join(this.#dir, "tiny.gguf"), tinyModel());
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** On the same port each time. */
  async start(): Promise<void> {
    this.#port ||= await freePort();
    const options = {
      "--model": join(this.#dir, "tiny.gguf"),
      "--alias": this.alias,
      "--host": "127.0.0.1",
      "--port": this.#port,
      "--ctx-size": CONTEXT * SLOTS,
      "--parallel": SLOTS,
      "--threads": 1,
    };
    const args = [...Object.entries(options).flat().map(String), ...this.flags];
    this.#child = spawn(program, args, { stdio: "ignore" });
    await until("llama.cpp is ready", () =>
      fetch(`${this.url}/health`).then(
        ({ ok }) => ok,
        () => false,
      ),
    );
  }

  signal(name: NodeJS.Signals): void {
    this.#child?.kill(name);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

/** Stands between the gateway and llama.cpp and keeps what passes. */
export function startTap(upstream: () => string) {
  /** Chats, in the order of their arrival. */
  const chats: { prompt: string; answer: Promise<string> }[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    async fetch(request) {
      const { pathname } = new URL(request.url);
      const body = request.method === "POST" ? await request.text() : undefined;
      const { resolve, promise } = Promise.withResolvers<string>();
      if (body && pathname.endsWith("/chat/completions"))
        chats.push({ prompt: JSON.parse(body).messages.at(-1).content, answer: promise });
      const answer = await fetch(`${upstream()}${pathname}`, {
        method: request.method,
        headers: { "content-type": "application/json" },
        ...(body !== undefined && { body }),
        signal: request.signal,
      });
      const [ours, theirs] = answer.body!.tee();
      void new Response(ours).text().then(resolve, () => resolve("broken off"));
      return new Response(theirs, { status: answer.status, headers: answer.headers });
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, chats, stop: () => server.stop(true) };
}
