/** Flow control of a tunnelled stream: a body on its way out, and one on its way in. */
import { DATA_BYTES_MAX, encodeCredit, FrameError, FrameType, WINDOW_BYTES } from "./frames.ts";

/** Carries frames. `send` never throws: on a dead channel it does nothing, and the owner closes the tunnel. */
export interface FrameChannel {
  send(type: FrameType, streamId: number, payload?: Uint8Array): void;
  /** Bodies wait while it is full. */
  readonly isFull: boolean;
  /** Calls `run` once, when the channel is no longer full. */
  whenWritable(run: () => void): void;
}

/** What can be told to stop for a while. */
export interface Pausable {
  pause(): void;
  resume(): void;
}

interface StreamOptions {
  channel: FrameChannel;
  streamId: number;
}

/** Sends one body within the peer's credit and no faster than the channel takes it; its source is paused meanwhile. */
export class BodySender {
  source: Pausable | null = null;
  /** Called once everything is sent. */
  whenOver: () => void = () => {};
  #creditBytes = WINDOW_BYTES;
  #pending: Uint8Array[] = [];
  #isPaused = false;
  #isWaiting = false;
  #isEnding = false;
  #isOver = false;

  constructor(readonly options: StreamOptions) {}

  write(bytes: Uint8Array): void {
    if (this.#isOver || bytes.byteLength === 0) return;
    this.#pending.push(bytes);
    this.#pump();
    if (this.#pending.length === 0 || this.#isPaused) return;
    this.#isPaused = true;
    this.source?.pause();
  }

  end(): void {
    this.#isEnding = true;
    this.#pump();
  }

  grant(bytes: number): void {
    if (this.#creditBytes + bytes > WINDOW_BYTES)
      throw new FrameError("more credit given than was ever taken");
    this.#creditBytes += bytes;
    this.#pump();
  }

  /** Nothing more is sent. */
  close(): void {
    this.#isOver = true;
    this.#pending = [];
  }

  #pump(): void {
    const { channel, streamId } = this.options;
    while (this.#pending.length > 0) {
      if (channel.isFull) this.#wait();
      const piece = this.#pending[0]!;
      const bytes = channel.isFull ? 0 : Math.min(this.#creditBytes, DATA_BYTES_MAX, piece.byteLength);
      if (bytes === 0) return;
      this.#creditBytes -= bytes;
      channel.send(FrameType.data, streamId, piece.subarray(0, bytes));
      if (bytes === piece.byteLength) this.#pending.shift();
      else this.#pending[0] = piece.subarray(bytes);
    }
    if (this.#isEnding && !this.#isOver) {
      this.#isOver = true;
      channel.send(FrameType.end, streamId);
      this.whenOver();
    } else if (this.#isPaused) {
      this.#isPaused = false;
      this.source?.resume();
    }
  }

  #wait(): void {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    this.options.channel.whenWritable(() => {
      this.#isWaiting = false;
      this.#pump();
    });
  }
}

/** Receives a body as it comes. */
export interface BodyReader {
  piece(bytes: Uint8Array): void;
  end(): void;
  failed(error: unknown): void;
}

/** Credit is returned in lumps of this size, so that a stream of tokens costs few credit frames. */
const CREDIT_LUMP_BYTES = WINDOW_BYTES / 2;
/** More unread pieces than this are joined, so that one-byte frames cost no more memory than their bytes. */
const PIECES_MAX = 128;

/** Hands a body on as it comes; while paused it keeps what arrives, at most the window. */
export class BodyReceiver implements Pausable {
  #pieces: Uint8Array[] = [];
  /** Arrived, and not returned as credit. */
  #heldBytes = 0;
  /** Of these, what was handed on. */
  #readBytes = 0;
  #isPaused = false;
  #ending: { error: unknown } | null = null;

  constructor(
    readonly options: StreamOptions,
    readonly reader: BodyReader,
  ) {}

  push(bytes: Uint8Array): void {
    this.#heldBytes += bytes.byteLength;
    if (this.#heldBytes > WINDOW_BYTES) throw new FrameError("body bytes sent without credit");
    if (bytes.byteLength === 0 || bytes.byteLength > DATA_BYTES_MAX)
      throw new FrameError(`data frame of ${bytes.byteLength} bytes`);
    if (this.#ending) return;
    if (!this.#isPaused) {
      this.#handOn(bytes);
      return;
    }
    // A copy: a view would keep the whole message.
    this.#pieces.push(Buffer.from(bytes));
    if (this.#pieces.length > PIECES_MAX) this.#pieces = [Buffer.concat(this.#pieces)];
  }

  /** With an error: the body broke off. What has arrived is handed on first. */
  end(error: unknown = null): void {
    this.#ending ??= { error };
    if (!this.#isPaused) this.#finish();
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    while (!this.#isPaused && this.#pieces.length > 0) this.#handOn(this.#pieces.shift()!);
    if (!this.#isPaused && this.#ending) this.#finish();
  }

  #finish(): void {
    const { error } = this.#ending!;
    // Whoever resumes it again must not hear of the end twice.
    this.#isPaused = true;
    if (error === null) this.reader.end();
    else this.reader.failed(error);
  }

  #handOn(bytes: Uint8Array): void {
    this.#readBytes += bytes.byteLength;
    if (this.#readBytes >= CREDIT_LUMP_BYTES && !this.#ending) {
      const { channel, streamId } = this.options;
      channel.send(FrameType.credit, streamId, encodeCredit(this.#readBytes));
      this.#heldBytes -= this.#readBytes;
      this.#readBytes = 0;
    }
    this.reader.piece(bytes);
  }
}
