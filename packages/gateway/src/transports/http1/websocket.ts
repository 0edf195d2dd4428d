import type { Clock } from "../../kernel/clock.ts";
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
} from "./websocket-frames.ts";

/** How long a peer may take to end a connection that this side has closed. */
export const CLOSE_GRACE_MS = 5_000;
/** Pongs that may wait for a peer that does not read; of further pings only the last is answered. */
export const PONGS_WAITING_MAX = 16;
/** Payloads from here on are sent as they are, behind a header of their own, instead of being copied. */
export const UNCOPIED_FROM_BYTES = 64 * 1024;

/** What a WebSocket needs of its connection. */
export interface BytePipe {
  /** Everything is taken: what the network does not take at once waits in the pipe. */
  write(bytes: Uint8Array): void;
  /** Bytes that wait. */
  readonly bufferedBytes: number;
  /**
   * Ends our side after what waits has been sent. Half of the connection only: to close it altogether
   * resets a peer that is still sending, which then never sees the close frame.
   */
  end(): void;
  /** Breaks it off now. */
  terminate(): void;
}

export interface SocketHandlers<Data> {
  open?(socket: ServerSocket<Data>): void;
  /** A binary message is a view of the bytes that were received; nothing else uses them. */
  message(socket: ServerSocket<Data>, message: string | Buffer): void | Promise<void>;
  /** Nothing waits to be sent any more. */
  drain?(socket: ServerSocket<Data>): void;
  /** Once: with the peer's code, 1005 if it gave none, 1006 if it vanished, ours if it broke the rules. */
  close(socket: ServerSocket<Data>, code: number, reason: string): void;
}

export interface ServerSocketOptions<Data> {
  pipe: BytePipe;
  data: Data;
  handlers: SocketHandlers<Data>;
  clock: Clock;
  messageBytesMax: number;
  /** A message for which there is no room in what waits is dropped. */
  bufferBytesMax: number;
  /** Is told what a handler throws; the connection goes on. */
  onError(error: unknown): void;
}

const State = {
  open: 0,
  /** Our close frame is sent, the peer's awaited. */
  closing: 1,
  /** Both sides know; only the end of the connection is awaited, what still comes is ignored. */
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
  /** Made by the first bytes: many sockets only listen. */
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

  send(text: string): number {
    return this.sendText(text);
  }

  /** Bytes written or queued; 0: dropped, because the socket is closed or too much waits already. */
  sendText(text: string): number {
    if (this.#state !== State.open) return 0;
    const payloadBytes = Buffer.byteLength(text);
    if (!this.#hasRoom(payloadBytes)) return 0;
    const frame = encodeText(text, payloadBytes);
    this.#pipe.write(frame);
    return frame.length;
  }

  /** As sendText. Large payloads are not copied: they belong to the socket from here on. */
  sendBinary(payload: Uint8Array): number {
    if (this.#state !== State.open || !this.#hasRoom(payload.length)) return 0;
    if (payload.length < UNCOPIED_FROM_BYTES) this.#pipe.write(encodeBytes(Opcode.binary, payload));
    else {
      this.#pipe.write(encodeHead(Opcode.binary, payload.length));
      this.#pipe.write(payload);
    }
    return frameHeadBytes(payload.length) + payload.length;
  }

  ping(): void {
    if (this.#state === State.open && this.#hasRoom(0)) this.#pipe.write(encodeHead(Opcode.ping, 0));
  }

  /** Nothing that still comes is handed on; the handler's `close` is called when the peer has agreed. */
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

  /** To be called once the answer to the handshake is on its way. */
  opened(): void {
    try {
      this.#handlers.open?.(this);
    } catch (error) {
      this.#onError(error);
    }
  }

  /** Bytes from the network; they belong to the socket from here on. */
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

  /** Nothing waits in the pipe any more. */
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
      // A copy: the payload is a view that would keep a whole read alive.
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

  /** Ends from both sides; `farewell` is our close frame, if it is not sent yet. */
  #finish(closing: Closing, farewell: Buffer): void {
    const isFirst = this.#state === State.open;
    // Before the pipe is touched: it may find out right then that the connection is gone.
    this.#state = State.ending;
    if (isFirst) {
      this.#startGrace();
      this.#pipe.write(farewell);
    }
    this.#pipe.end();
    this.#report(closing);
  }

  /** A peer that neither answers nor goes is cut off. */
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

  /** A message alone may be larger than the limit: it could never be sent otherwise. */
  #hasRoom(payloadBytes: number): boolean {
    const waitingBytes = this.#pipe.bufferedBytes;
    return waitingBytes === 0 || waitingBytes + payloadBytes <= this.#bufferBytesMax;
  }
}
