import { join } from "node:path";

/** What a client wrote down. The name of an operation is sent along, so that all records can be joined by it. */
export interface Invoked {
  type: "invoke";
  op: number;
  atMs: number;
  instance: string;
  model: string;
  stream: boolean;
}
/**
 * ok: a whole answer. fail: the service said that there is none, or no more of it. unknown: neither; it may or may
 * not have been done.
 */
export interface Concluded {
  type: "ok" | "fail" | "unknown";
  op: number;
  atMs: number;
  firstByteMs: number | null;
  /** 0: no answer at all. */
  status: number;
  requestId: string | null;
  /**
   * whole: a body that was not a stream. done: `[DONE]`. error: an error event, or an error as the answer. left: by
   * the client. cut: the connection ended in the middle. none: no connection, or it ended before an answer.
   * timeout: the client gave up.
   */
  ended: "whole" | "done" | "error" | "left" | "cut" | "none" | "timeout";
  /** Pieces of text that it got. */
  pieces: number;
  /** What it was told of an error. */
  error: string;
}
export type ClientRecord = Invoked | Concluded;

/** What an upstream wrote down; bytes as Latin-1 text. */
export type JournalRecord =
  | { event: "request"; upstream: string; id: number; atMs: number; op: number; bytes: string }
  | { event: "sent"; upstream: string; id: number; atMs: number; bytes: string }
  | { event: "ended"; upstream: string; id: number; atMs: number; by: "upstream" | "gateway" };

export interface FaultRecord {
  kind: string;
  target: string;
  beganMs: number;
  endedMs: number;
}

/** Lines of JSON, as many as a run makes. */
export class Recorder<T> {
  readonly #sink: Bun.FileSink;
  #isOver = false;

  constructor(readonly path: string) {
    this.#sink = Bun.file(path).writer();
  }

  write(record: T): void {
    if (!this.#isOver) this.#sink.write(`${JSON.stringify(record)}\n`);
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#sink.end();
  }
}

export const FILES = { clients: "clients.jsonl", upstreams: "upstreams.jsonl", faults: "faults.jsonl" };

export async function readRecords<T>(dir: string, file: keyof typeof FILES): Promise<T[]> {
  const text = await Bun.file(join(dir, FILES[file])).text();
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as T);
}
