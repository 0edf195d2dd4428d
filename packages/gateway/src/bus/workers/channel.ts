import { sendsElsewhere } from "@model-gateway/wire/turns";
import type { Socket } from "bun";

const HEADER_BYTES = 4;
/** A message that does not fit into a frame is not sent. */
export const FRAME_BYTES_MAX = 64 * 1024 * 1024;
/** A peer that leaves this much unread is disconnected. */
const UNSENT_BYTES_MAX = 256 * 1024 * 1024;

interface ChannelOptions<In> {
  socket: Pick<Socket<unknown>, "write" | "terminate">;
  receive(message: In): void;
  dropped(bytes: number): void;
  /** A frame was invalid or could not be handled; the connection ends. */
  broke(error: unknown): void;
}

/** One end of a connection between worker and supervisor. A frame is a length and a JSON array of one turn's messages. */
export class Channel<In, Out> {
  #batch: Out[] = [];
  #unsent: Buffer[] = [];
  #unsentBytes = 0;
  /** Received parts of a header, or of a body once `#bodyBytes` is known. */
  #pieces: Buffer[] = [];
  #piecesBytes = 0;
  #bodyBytes: number | null = null;
  #isClosed = false;

  constructor(readonly options: ChannelOptions<In>) {}

  send(message: Out): void {
    if (this.#batch.push(message) === 1) setImmediate(() => this.flush());
  }

  flush(): void {
    if (this.#batch.length === 0 || this.#isClosed) return;
    // The worker that gets the end of an answer sends it to its client.
    sendsElsewhere();
    const batch = this.#batch;
    this.#batch = [];
    this.#frame(batch);
  }

  #frame(batch: Out[]): void {
    const text = JSON.stringify(batch);
    const bytes = Buffer.byteLength(text);
    if (bytes > FRAME_BYTES_MAX) {
      if (batch.length === 1) this.options.dropped(bytes);
      else for (const message of batch) this.#frame([message]);
      return;
    }
    const frame = Buffer.allocUnsafe(HEADER_BYTES + bytes);
    frame.writeUInt32BE(bytes, 0);
    frame.write(text, HEADER_BYTES);
    this.#write(frame);
  }

  #write(frame: Buffer): void {
    const written = this.#unsent.length === 0 ? Math.max(0, this.options.socket.write(frame)) : 0;
    if (written === frame.length) return;
    this.#unsent.push(frame.subarray(written));
    this.#unsentBytes += frame.length - written;
    if (this.#unsentBytes > UNSENT_BYTES_MAX) this.close();
  }

  drained(): void {
    while (this.#unsent.length > 0) {
      const next = this.#unsent[0]!;
      const written = Math.max(0, this.options.socket.write(next));
      this.#unsentBytes -= written;
      if (written < next.length) {
        this.#unsent[0] = next.subarray(written);
        return;
      }
      this.#unsent.shift();
    }
  }

  received(bytes: Buffer): void {
    try {
      for (let rest = bytes; rest.length > 0 && !this.#isClosed; ) rest = this.#take(rest);
    } catch (error) {
      this.options.broke(error);
      this.close();
    }
  }

  /** Consumes the missing part of the header or body, and returns the rest. */
  #take(bytes: Buffer): Buffer {
    const missing = (this.#bodyBytes ?? HEADER_BYTES) - this.#piecesBytes;
    const piece = bytes.subarray(0, missing);
    this.#pieces.push(piece);
    this.#piecesBytes += piece.length;
    if (piece.length < missing) return bytes.subarray(piece.length);
    const whole = this.#pieces.length === 1 ? piece : Buffer.concat(this.#pieces);
    this.#pieces = [];
    this.#piecesBytes = 0;
    if (this.#bodyBytes === null) {
      this.#bodyBytes = whole.readUInt32BE(0);
      if (this.#bodyBytes > FRAME_BYTES_MAX) throw new Error("a frame is too large");
    } else {
      this.#bodyBytes = null;
      for (const message of JSON.parse(whole.toString()) as In[]) this.options.receive(message);
    }
    return bytes.subarray(missing);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#batch = [];
    this.#unsent = [];
    this.options.socket.terminate();
  }
}
