/** An engine's output on disk, bounded: one file and its predecessor; the last lines stay at hand. */
import { closeSync, mkdirSync, openSync, readSync, renameSync, statSync, writeSync } from "node:fs";
import { dirname } from "node:path";

const LOG_BYTES_MAX = 20 * 1024 * 1024;
const TAIL_CHARS_MAX = 2_000;

/** The last lines of a log that may have been rotated a moment ago; empty where there is none. */
export function readTail(path: string, { lines, bytesMax }: { lines: number; bytesMax: number }): string {
  const newest = endOf(path, bytesMax);
  const older = endOf(`${path}.1`, bytesMax - newest.byteLength);
  // The cut may be in the middle of a character, and is in the middle of a line.
  const text = new TextDecoder().decode(Buffer.concat([older, newest]));
  return text.trimEnd().split("\n").slice(-lines).join("\n");
}

function endOf(path: string, bytesMax: number): Buffer {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch {
    return Buffer.alloc(0);
  }
  try {
    const { size } = statSync(path);
    const end = Buffer.alloc(Math.min(size, bytesMax));
    return end.subarray(0, readSync(file, end, 0, end.byteLength, size - end.byteLength));
  } finally {
    closeSync(file);
  }
}

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
