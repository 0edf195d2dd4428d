import type { Clock } from "../clock.ts";
import {
  CloseCode,
  type Closing,
  encodeBytes,
  encodeClose,
  encodeHead,
  encodeText,
  Found,
  FrameDecoder,
  frameHeadBytes,
  Opcode,
  parseClose,
} from "./frames.ts";

/** How long a peer may take to close the connection after this side has. */
export const CLOSE_GRACE_MS = 5_000;
/** Pongs that may queue up for a peer that does not read; of further pings only the last is answered. */
export const PONGS_WAITING_MAX = 16;
/** Payloads from this size on are not copied behind their header but sent after it. */
export const UNCOPIED_FROM_BYTES = 64 * 1024;

/** What a WebSocket needs of its connection. */
export interface BytePipe {
  /** Accepts everything: what the network does not take at once is buffered. */
  write(bytes: Uint8Array): void;
  /** Bytes that are buffered. */
  readonly bufferedBytes: number;
  /**
   * Closes our half after the buffered bytes are sent. Closing both halves would reset a peer that is still sending,
   * which then never sees the close frame.
   */
  end(): void;
  /** Resets the connection now. */
  terminate(): void;
}

export interface SocketHandlers<Data> {
  open?(socket: ServerSocket<Data>): void;
  /** A binary message is a view of the received bytes, which nothing else uses. */
  message(socket: ServerSocket<Data>, message: string | Buffer): void | Promise<void>;
  /** Everything buffered has been sent. */
  drain?(socket: ServerSocket<Data>): void;
  /** Called once: with the peer's code, 1005 if it gave none, 1006 if it vanished, ours if it broke the protocol. */
  close(socket: ServerSocket<Data>, code: number, reason: string): void;
  /** A stopping listener leaves the socket open until its handler closes it, or everything is cut off. */
  readonly closesItself?: boolean;
}

export interface ServerSocketOptions<Data> {
  pipe: BytePipe;
  data: Data;
  handlers: SocketHandlers<Data>;
  clock: Clock;
  messageBytesMax: number;
  /** A message that does not fit into this many buffered bytes is dropped. */
  bufferBytesMax: number;
  /** Receives what a handler throws; the connection stays open. */
  onError(error: unknown): void;
}

const State = {
  open: 0,
  /** Our close frame is sent, the peer's is awaited. */
  closing: 1,
  /** Both sides have closed; only the end of the connection is awaited. */
  ending: 2,
  closed: 3,
} as const;
type State = (typeof State)[keyof typeof State];

/** The server's end of a WebSocket without extensions, over any pipe of bytes. */
export class ServerSocket<Data> {
  data: Data;
  readonly #pipe: BytePipe;
  readonly #handlers: SocketHandlers<Data>;
  readonly #clock: Clock;
  readonly #messageBytesMax: number;
  readonly #bufferBytesMax: number;
  readonly #onError: (error: unknown) => void;
  #state: State = State.open;
  /** Created by the first bytes: many sockets never send any. */
  #decoder: FrameDecoder | null = null;
  #cancelGrace: (() => void) | null = null;
  #pongsWaiting = 0;
  #unansweredPing: Buffer | null = null;

  constructor(options: ServerSocketOptions<Data>) {
    this.data = options.data;
    this.#pipe = options.pipe;
    this.#handlers = options.handlers;
    this.#clock = options.clock;
    this.#messageBytesMax = options.messageBytesMax;
    this.#bufferBytesMax = options.bufferBytesMax;
    this.#onError = options.onError;
  }

  get isOpen(): boolean {
    return this.#state === State.open;
  }

  getBufferedAmount(): number {
    return this.#state === State.closed ? 0 : this.#pipe.bufferedBytes;
  }

  /** Returns the bytes written or buffered; 0 when dropped, because the socket is closed or its buffer full. */
  sendText(text: string): number {
    if (this.#state !== State.open) return 0;
    const payloadBytes = Buffer.byteLength(text);
    if (!this.#fits(payloadBytes)) return 0;
    const frame = encodeText(text, payloadBytes);
    this.#pipe.write(frame);
    return frame.length;
  }

  /** Like sendText. Large payloads are not copied: the caller must not change them afterwards. */
  sendBinary(payload: Uint8Array): number {
    if (this.#state !== State.open || !this.#fits(payload.length)) return 0;
    if (payload.length < UNCOPIED_FROM_BYTES) this.#pipe.write(encodeBytes(Opcode.binary, payload));
    else {
      this.#pipe.write(encodeHead(Opcode.binary, payload.length));
      this.#pipe.write(payload);
    }
    return frameHeadBytes(payload.length) + payload.length;
  }

  /** The listener stops. */
  retire(): void {
    if (!this.#handlers.closesItself) this.close(1001, "this instance is stopping");
  }

  /** Later messages are dropped; the handler's `close` is called when the peer has closed too. */
  close(code: number = CloseCode.normal, reason = ""): void {
    if (this.#state !== State.open) return;
    const frame = encodeClose(code, reason);
    this.#state = State.closing;
    this.#startGrace();
    this.#pipe.write(frame);
  }

  terminate(): void {
    if (this.#state === State.closed) return;
    this.#pipe.terminate();
    this.disconnected();
  }

  /** Call once the reply to the handshake is queued. */
  opened(): void {
    try {
      this.#handlers.open?.(this);
    } catch (error) {
      this.#onError(error);
    }
  }

  /** Bytes from the network; the socket owns them from here on. */
  received(bytes: Buffer): void {
    if (this.#state >= State.ending) return;
    this.#decoder ??= new FrameDecoder(this.#messageBytesMax);
    const decoder = this.#decoder;
    decoder.feed(bytes);
    // A handler may close or terminate between two frames of one read.
    while (this.#state < State.ending) {
      const found = decoder.next();
      if (found === Found.nothing) return;
      if (found === Found.text || found === Found.binary) this.#deliver(decoder.data);
      else if (found === Found.violation) this.#fail(decoder.violation!);
      else if (found === Found.ping) this.#answerPing(decoder.data as Buffer);
      else if (found === Found.close) this.#peerCloses(decoder.data as Buffer);
    }
  }

  /** The pipe's buffer is empty. */
  drained(): void {
    if (this.#state !== State.open) return;
    this.#pongsWaiting = 0;
    if (this.#unansweredPing !== null) {
      this.#pipe.write(encodeBytes(Opcode.pong, this.#unansweredPing));
      this.#unansweredPing = null;
    }
    try {
      this.#handlers.drain?.(this);
    } catch (error) {
      this.#onError(error);
    }
  }

  /** The connection is gone. */
  disconnected(): void {
    const before = this.#state;
    if (before === State.closed) return;
    this.#state = State.closed;
    this.#cancelGrace?.();
    this.#cancelGrace = null;
    if (before < State.ending) this.#report({ code: CloseCode.vanished, reason: "" });
  }

  #deliver(message: string | Buffer): void {
    if (this.#state !== State.open) return;
    try {
      const done = this.#handlers.message(this, message);
      if (done instanceof Promise) done.catch(this.#onError);
    } catch (error) {
      this.#onError(error);
    }
  }

  #answerPing(payload: Buffer): void {
    if (this.#state !== State.open) return;
    if (this.#pipe.bufferedBytes === 0) this.#pongsWaiting = 0;
    else if (this.#pongsWaiting >= PONGS_WAITING_MAX) {
      // A copy: a view would keep the whole read alive.
      this.#unansweredPing = Buffer.from(payload);
      return;
    }
    this.#pongsWaiting++;
    this.#pipe.write(encodeBytes(Opcode.pong, payload));
  }

  #peerCloses(payload: Buffer): void {
    const { code, reason, violation } = parseClose(payload);
    if (violation) this.#fail(violation);
    else this.#finish({ code, reason }, encodeClose(code, ""));
  }

  #fail(violation: Closing): void {
    this.#finish(violation, encodeClose(violation.code, violation.reason));
  }

  /** Closes from both sides; `farewell` is our close frame, if it has not been sent yet. */
  #finish(closing: Closing, farewell: Buffer): void {
    const isFirst = this.#state === State.open;
    // Set first: writing to the pipe may reveal that the connection is gone.
    this.#state = State.ending;
    if (isFirst) {
      this.#startGrace();
      this.#pipe.write(farewell);
    }
    this.#pipe.end();
    this.#report(closing);
  }

  /** Cuts off a peer that neither answers nor disconnects. */
  #startGrace(): void {
    this.#cancelGrace = this.#clock.after(CLOSE_GRACE_MS, () => this.terminate());
  }

  #report({ code, reason }: Closing): void {
    this.#decoder = null;
    this.#unansweredPing = null;
    try {
      this.#handlers.close(this, code, reason);
    } catch (error) {
      this.#onError(error);
    }
  }

  /** A single message may exceed the limit: it could never be sent otherwise. */
  #fits(payloadBytes: number): boolean {
    const waitingBytes = this.#pipe.bufferedBytes;
    return waitingBytes === 0 || waitingBytes + payloadBytes <= this.#bufferBytesMax;
  }
}
