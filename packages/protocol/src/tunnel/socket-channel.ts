/** A FrameChannel over any WebSocket that knows how many bytes it has not sent yet. */
import type { FrameChannel } from "./flow.ts";
import { DATA_BYTES_MAX } from "./frames.ts";

/** Bytes that may be buffered in the socket; beyond that, body frames queue up, oldest first. */
const HIGH_WATER_BYTES = 1024 * 1024;
/** WebSocket clients have no drain event, so a congested socket is polled. */
const POLL_MS = 5;

export interface SocketLike {
  send(frame: Uint8Array): void;
  bufferedBytes(): number;
}

export class SocketChannel implements FrameChannel {
  readonly #socket: SocketLike;
  #waiters: (() => void)[] = [];
  #poll: ReturnType<typeof setInterval> | null = null;
  #closed = false;

  constructor(socket: SocketLike) {
    this.#socket = socket;
  }

  send(frame: Uint8Array): void {
    if (!this.#closed) this.#socket.send(frame);
  }

  writable(): Promise<void> | null {
    if (this.#closed) return null;
    if (this.#waiters.length === 0 && this.#socket.bufferedBytes() < HIGH_WATER_BYTES) return null;
    this.#poll ??= setInterval(() => this.drained(), POLL_MS);
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  /** Releases as many waiting frames as fit. Call it from the socket's drain event if there is one. */
  drained(): void {
    const roomBytes = HIGH_WATER_BYTES - this.#socket.bufferedBytes();
    const count = Math.max(0, Math.ceil(roomBytes / DATA_BYTES_MAX));
    for (const wake of this.#waiters.splice(0, count)) wake();
    if (this.#waiters.length === 0) this.#stopPolling();
  }

  /** The socket is gone: releases everything that waits. */
  close(): void {
    this.#closed = true;
    this.#stopPolling();
    for (const wake of this.#waiters.splice(0)) wake();
  }

  #stopPolling(): void {
    if (this.#poll) clearInterval(this.#poll);
    this.#poll = null;
  }
}
