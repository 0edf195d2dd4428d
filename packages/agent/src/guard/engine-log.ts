/** An engine's output on disk, bounded: one file and its predecessor; the last lines stay at hand. */
import { closeSync, mkdirSync, openSync, renameSync, statSync, writeSync } from "node:fs";
import { dirname } from "node:path";

const LOG_BYTES_MAX = 20 * 1024 * 1024;
const TAIL_CHARS_MAX = 2_000;

export class EngineLog {
  readonly #path: string;
  #file: number;
  #sizeBytes: number;
  #tail = "";

  constructor(path: string) {
    this.#path = path;
    mkdirSync(dirname(path), { recursive: true });
    this.#file = openSync(path, "a", 0o600);
    this.#sizeBytes = statSync(path).size;
  }

  /** The last lines that the engine wrote. */
  get tail(): string {
    return this.#tail.trim();
  }

  async copyFrom(source: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    for await (const chunk of source) {
      this.#write(chunk);
      this.#tail = (this.#tail + decoder.decode(chunk, { stream: true })).slice(-TAIL_CHARS_MAX);
    }
  }

  #write(chunk: Uint8Array): void {
    try {
      if (this.#sizeBytes + chunk.byteLength > LOG_BYTES_MAX) this.#rotate();
      this.#sizeBytes += writeSync(this.#file, chunk);
    } catch {
      // A full disk must not stop the engine; only its output is lost.
    }
  }

  #rotate(): void {
    closeSync(this.#file);
    renameSync(this.#path, `${this.#path}.1`);
    this.#file = openSync(this.#path, "a", 0o600);
    this.#sizeBytes = 0;
  }
}
