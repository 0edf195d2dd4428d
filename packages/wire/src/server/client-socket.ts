import type { Socket } from "bun";
import type { Clock } from "../clock.ts";
import { type Drainable, Outbox } from "../turns/outbox.ts";
import { LINGER_MS, LINGER_SENDING_MS, UNREAD_MS } from "./limits.ts";

/** A client's socket: its outgoing bytes, its deadline, and how it is closed. */
export class ClientSocket {
  /** Read once: a closed socket no longer knows it. */
  readonly remoteAddress: string;
  readonly outbox: Outbox;
  /** The last reply is written; whatever still arrives is discarded. */
  isLingering = false;
  isClosed = false;
  /** The client is in the middle of sending a body. */
  #isSending = false;
  #isPaused = false;
  /** When the client's time is up; 0 when nothing is expected of it. */
  #deadlineMs = 0;

  constructor(
    readonly socket: Socket<Drainable>,
    readonly clock: Clock,
  ) {
    this.remoteAddress = socket.remoteAddress ?? "";
    this.outbox = new Outbox(socket);
  }

  /** Everything has been handed to the operating system. */
  get isTaken(): boolean {
    return this.outbox.waitingBytes === 0;
  }
  get isUsable(): boolean {
    return !this.isLingering && !this.isClosed;
  }

  get isExpecting(): boolean {
    return this.#deadlineMs > 0;
  }
  isOverdue(nowMs: number): boolean {
    return this.isExpecting && nowMs >= this.#deadlineMs;
  }
  expectWithin(ms: number): void {
    this.#deadlineMs = this.clock.now() + ms;
  }
  expectBy(deadlineMs: number): void {
    this.#deadlineMs = deadlineMs;
  }
  expectNothing(): void {
    this.#deadlineMs = 0;
  }

  /** Sends what is kept. False when some of it is still waiting. */
  drained(): boolean {
    const before = this.outbox.waitingBytes;
    this.outbox.drained();
    if (this.isTaken) return true;
    if (this.outbox.waitingBytes < before && this.isExpecting) this.expectWithin(UNREAD_MS);
    return false;
  }

  pause(): void {
    if (this.#isPaused) return;
    this.#isPaused = true;
    this.socket.pause();
  }
  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.socket.resume();
  }

  /** No more replies: the client receives what is already written, then the end of the stream. */
  linger(isSending: boolean): void {
    this.isLingering = true;
    this.#isSending = isSending;
    // Unread bytes would make the kernel reset the connection before the client has read our last reply.
    this.resume();
    // Sent now, so that `isTaken` is up to date.
    Outbox.flush();
    if (this.isTaken) this.shutDown();
    else this.expectWithin(UNREAD_MS);
  }

  /** Closes our half of the connection. */
  shutDown(): void {
    this.expectWithin(this.#isSending ? LINGER_SENDING_MS : LINGER_MS);
    this.socket.shutdown();
  }

  /** Closes both halves; only when nothing is in progress. */
  end(): void {
    Outbox.flush();
    this.socket.end();
  }

  terminate(): void {
    Outbox.flush();
    this.socket.terminate();
  }
}
