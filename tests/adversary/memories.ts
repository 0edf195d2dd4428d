import { type MemoryServer, startMemoryServer } from "../../packages/memory-server/src/server.ts";
import { textOf } from "./tokens.ts";

const FACTS = 12;
const FACT_TOKENS = 90;

/** The reference memory service, and a way to have it know long things about someone. */
export class Memories {
  readonly #server: MemoryServer;
  readonly #socket: WebSocket;
  readonly #opened: Promise<unknown>;

  constructor(dataDir: string) {
    this.#server = startMemoryServer({ dataDir, port: 0 });
    this.#socket = new WebSocket(this.#server.url);
    this.#opened = new Promise((resolve) => {
      this.#socket.onopen = resolve;
    });
  }

  get url(): string {
    return this.#server.url;
  }

  /** Facts that every prompt brings back: they share its words. */
  async teach(userId: string): Promise<void> {
    await this.#opened;
    const content = Array.from(
      { length: FACTS },
      (_, i) => `Number ${i} of what I told you is this:${textOf("prose", FACT_TOKENS)}.`,
    ).join("\n");
    const params = { user_id: userId, messages: [{ role: "user", content }], idempotency_key: userId };
    this.#socket.send(JSON.stringify({ jsonrpc: "2.0", id: userId, method: "Memory.Write", params }));
  }

  async stop(): Promise<void> {
    this.#socket.close();
    await this.#server.stop();
  }
}
