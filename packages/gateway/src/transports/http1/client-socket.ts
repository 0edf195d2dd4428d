import type { Socket } from "bun";
import type { Clock } from "../../kernel/clock.ts";
import { Outbox } from "../../kernel/sockets/outbox.ts";
import { LINGER_MS, LINGER_SENDING_MS, UNREAD_MS } from "./limits.ts";

/** A client's socket: what waits to be sent on it, how long the client may keep us waiting, and how it ends. */
export class ClientSocket {
  /** Asked for now: a socket that is closed has none. */
  readonly remoteAddress: string;
  readonly outbox: Outbox;
  /** The last answer is written; what still comes is thrown away. */
  isLingering = false;
  isClosed = false;
  /** The client is in the middle of sending something. */
  #isSending = false;
  #isPaused = false;
  /** When the client has kept us waiting for too long; 0: it does not. */
  #deadlineMs = 0;

  constructor(
    readonly socket: Socket<unknown>,
    readonly clock: Clock,
  ) {
    this.remoteAddress = socket.remoteAddress ?? "";
    this.outbox = new Outbox(socket);
  }

  /** The client has taken everything, or the kernel for it. */
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

  /** Sends on. False when the client has not taken everything yet. */
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

  /** Nothing more is answered: the client gets what is written, and then the end. */
  linger(isSending: boolean): void {
    this.isLingering = true;
    this.#isSending = isSending;
    // What it still sends must be read away, or its end of the connection breaks before it has read ours.
    this.resume();
    // Whether the socket takes everything has to be known now.
    Outbox.flush();
    if (this.isTaken) this.shutDown();
    else this.expectWithin(UNREAD_MS);
  }

  /** Ends our side of it. */
  shutDown(): void {
    this.expectWithin(this.#isSending ? LINGER_SENDING_MS : LINGER_MS);
    this.socket.shutdown();
  }

  /** Both sides, when nothing is under way. */
  end(): void {
    Outbox.flush();
    this.socket.end();
  }

  terminate(): void {
    Outbox.flush();
    this.socket.terminate();
  }
}
