/** Flow control of one direction of a tunnelled stream: the sender's window and the receiver's buffer. */
import { DATA_BYTES_MAX, encodeData, encodeEnd, FrameError, WINDOW_BYTES } from "./frames.ts";

/** Carries frames. `send` never throws: on a dead channel it does nothing, and the owner closes the tunnel. */
export interface FrameChannel {
  send(frame: Uint8Array): void;
  /** Null while the channel accepts more; otherwise a promise that resolves when it does, or when it ends. */
  writable(): Promise<void> | null;
}

/** Credit from the peer for body bytes. */
export class SendWindow {
  #availableBytes = WINDOW_BYTES;
  #failure: Error | null = null;
  #wake: (() => void) | null = null;
  #onFail: ((error: Error) => void) | null = null;

  /** Takes between 1 and `bytesMax` bytes of credit, waiting while there is none. Throws once failed. */
  async take(bytesMax: number): Promise<number> {
    while (this.#availableBytes === 0 && !this.#failure) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#failure) throw this.#failure;
    const taken = Math.min(bytesMax, this.#availableBytes);
    this.#availableBytes -= taken;
    return taken;
  }

  grant(bytes: number): void {
    if (this.#availableBytes + bytes > WINDOW_BYTES)
      throw new FrameError("more credit given than was ever taken");
    this.#availableBytes += bytes;
    this.#wake?.();
  }

  fail(error: Error): void {
    if (this.#failure) return;
    this.#failure = error;
    this.#wake?.();
    this.#onFail?.(error);
  }

  get failed(): boolean {
    return this.#failure !== null;
  }

  onFail(callback: (error: Error) => void): void {
    this.#onFail = callback;
    if (this.#failure) callback(this.#failure);
  }
}

/** Credit is returned in lumps of this size, so that a stream of tokens costs few credit frames. */
const CREDIT_LUMP_BYTES = WINDOW_BYTES / 2;
/** More unread pieces than this are joined, so that one-byte frames cost no more memory than their bytes. */
const PIECES_MAX = 128;

/** Received body bytes, as a stream that its consumer reads at its own pace. */
export class ReceiveBody {
  readonly stream: ReadableStream<Uint8Array<ArrayBuffer>>;
  #pieces: Uint8Array<ArrayBuffer>[] = [];
  #bufferedBytes = 0;
  #takenBytes = 0;
  #outstandingBytes = 0;
  #ended = false;
  #failure: unknown = null;
  #cancelled = false;
  #wake: (() => void) | null = null;
  #controller: ReadableStreamDefaultController<Uint8Array<ArrayBuffer>> | null = null;
  readonly #onCredit: (bytes: number) => void;

  constructor(options: { onCredit: (bytes: number) => void; onCancel: (reason: unknown) => void }) {
    this.#onCredit = options.onCredit;
    this.stream = new ReadableStream<Uint8Array<ArrayBuffer>>(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        pull: (controller) => this.#pull(controller),
        cancel: (reason) => {
          this.#cancelled = true;
          this.#drop();
          options.onCancel(reason);
        },
      },
      { highWaterMark: 0 },
    );
  }

  push(bytes: Uint8Array): void {
    this.#outstandingBytes += bytes.byteLength;
    if (this.#outstandingBytes > WINDOW_BYTES) throw new FrameError("body bytes sent without credit");
    if (this.#cancelled || this.#ended) return;
    this.#pieces.push(bytes as Uint8Array<ArrayBuffer>);
    this.#bufferedBytes += bytes.byteLength;
    if (this.#pieces.length > PIECES_MAX) this.#pieces = [joined(this.#pieces, this.#bufferedBytes)];
    this.#wake?.();
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  /** Ends the body with an error once everything that has arrived is read. */
  failAfterBuffered(error: unknown): void {
    this.#failure ??= error;
    this.end();
  }

  /** Ends the body with an error at once and drops what was not read yet. */
  failNow(error: unknown): void {
    if (this.#cancelled || (this.#ended && this.#pieces.length === 0 && !this.#failure)) return;
    this.#drop();
    this.#cancelled = true;
    this.#controller?.error(error);
    this.end();
  }

  async #pull(controller: ReadableStreamDefaultController<Uint8Array<ArrayBuffer>>): Promise<void> {
    while (this.#pieces.length === 0 && !this.#ended && !this.#cancelled) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#cancelled) return;
    const piece = this.#pieces.shift();
    if (piece) {
      this.#bufferedBytes -= piece.byteLength;
      this.#taken(piece.byteLength);
      controller.enqueue(piece);
    } else if (this.#failure) controller.error(this.#failure);
    else controller.close();
  }

  #taken(bytes: number): void {
    this.#takenBytes += bytes;
    if (this.#ended || this.#takenBytes < CREDIT_LUMP_BYTES) return;
    const creditBytes = this.#takenBytes;
    this.#takenBytes = 0;
    this.#outstandingBytes -= creditBytes;
    this.#onCredit(creditBytes);
  }

  #drop(): void {
    this.#pieces = [];
    this.#bufferedBytes = 0;
    this.#wake?.();
  }
}

function joined(pieces: Uint8Array[], totalBytes: number): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(totalBytes);
  let offset = 0;
  for (const piece of pieces) {
    whole.set(piece, offset);
    offset += piece.byteLength;
  }
  return whole;
}

/**
 * Sends a whole body within the window, then END. Throws what the source throws. When the window fails, the source is
 * cancelled, even while it is silent.
 */
export async function sendBody(options: {
  channel: FrameChannel;
  streamId: number;
  window: SendWindow;
  source: ReadableStream<Uint8Array>;
}): Promise<void> {
  const { channel, streamId, window } = options;
  const reader = options.source.getReader();
  // An error while cancelling concerns no one.
  const stopSource = (error: unknown) => void reader.cancel(error).catch(() => undefined);
  window.onFail(stopSource);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      for (let offset = 0; offset < value.byteLength; ) {
        const bytes = await window.take(Math.min(DATA_BYTES_MAX, value.byteLength - offset));
        const congestion = channel.writable();
        if (congestion) await congestion;
        if (!window.failed) channel.send(encodeData(streamId, value.subarray(offset, offset + bytes)));
        offset += bytes;
      }
    }
  } catch (error) {
    stopSource(error);
    throw error;
  }
  if (!window.failed) channel.send(encodeEnd(streamId));
}
