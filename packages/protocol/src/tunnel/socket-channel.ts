/** A FrameChannel over any WebSocket that knows how many bytes it has not sent yet. */
import type { FrameChannel } from "./flow.ts";
import { FrameBatch, type FrameType } from "./frames.ts";

/** Bytes that may be buffered in the socket; beyond that, bodies wait, oldest first. */
const HIGH_WATER_BYTES = 1024 * 1024;
/** WebSocket clients have no drain event, so a congested socket is polled. */
const POLL_MS = 5;

export interface SocketLike {
  send(message: Uint8Array<ArrayBuffer>): void;
  bufferedBytes(): number;
}

export class SocketChannel implements FrameChannel {
  readonly #socket: SocketLike;
  readonly #batch: FrameBatch;
  #waiting: (() => void)[] = [];
  #poll: ReturnType<typeof setInterval> | null = null;
  #closed = false;

  constructor(socket: SocketLike) {
    this.#socket = socket;
    this.#batch = new FrameBatch((message) => {
      if (!this.#closed) socket.send(message);
    });
  }

  send(type: FrameType, streamId: number, payload?: Uint8Array): void {
    if (!this.#closed) this.#batch.add(type, streamId, payload);
  }

  get isFull(): boolean {
    return !this.#closed && this.#socket.bufferedBytes() >= HIGH_WATER_BYTES;
  }

  whenWritable(run: () => void): void {
    this.#waiting.push(run);
    this.#poll ??= setInterval(() => this.drained(), POLL_MS);
  }

  /** Lets bodies go on while there is room. Call it from the socket's drain event if there is one. */
  drained(): void {
    for (let left = this.#waiting.length; left > 0 && !this.isFull; left--) this.#waiting.shift()!();
    if (this.#waiting.length === 0) this.#stopPolling();
  }

  /** The socket is gone. */
  close(): void {
    this.#closed = true;
    this.#waiting = [];
    this.#stopPolling();
  }

  #stopPolling(): void {
    if (this.#poll) clearInterval(this.#poll);
    this.#poll = null;
  }
}
