import type { Socket } from "bun";

/**
 * Where parts of a message are put together, so that they leave in one write. Shared by all connections: the
 * socket has taken the bytes, or a copy of the rest is kept, before anyone else runs.
 */
const SCRATCH = Buffer.allocUnsafeSlow(64 * 1024);
const CHUNK_END = Buffer.from("\r\n");
const LAST_CHUNK = "0\r\n\r\n";

/** What a connection has to send: written at once as far as the socket takes it, kept in order beyond. */
export class Outbox {
  #waiting: Uint8Array[] | null = null;
  waitingBytes = 0;

  constructor(readonly socket: Socket<unknown>) {}

  /** Everything is taken. */
  send(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    if (this.waitingBytes > 0) this.#keep(bytes);
    else this.#sent(bytes, this.socket.write(bytes));
  }

  /** A head and a body, in one write where they are small. */
  sendMessage(head: string, body: Uint8Array | string): void {
    if (typeof body === "string") {
      // Three bytes are the most that one unit of a string becomes.
      if (head.length + body.length * 3 > SCRATCH.length) {
        const message = Buffer.allocUnsafe(head.length + Buffer.byteLength(body));
        message.write(head, 0, "latin1");
        message.write(body, head.length, "utf8");
        this.send(message);
        return;
      }
      const headBytes = SCRATCH.write(head, 0, "latin1");
      this.#sendScratch(headBytes + SCRATCH.write(body, headBytes, "utf8"));
    } else if (head.length + body.length > SCRATCH.length) {
      this.send(Buffer.from(head, "latin1"));
      this.send(body);
    } else {
      SCRATCH.write(head, 0, "latin1");
      SCRATCH.set(body, head.length);
      this.#sendScratch(head.length + body.length);
    }
  }

  /** A piece of a body whose length nobody knows: with what stands before it, its size, and the end if it is the last. */
  sendChunk(before: string, piece: Uint8Array, isLast: boolean): void {
    const size = piece.length === 0 ? before : `${before}${piece.length.toString(16)}\r\n`;
    const after = piece.length === 0 ? (isLast ? LAST_CHUNK : "") : isLast ? `\r\n${LAST_CHUNK}` : "\r\n";
    const length = size.length + piece.length + after.length;
    if (length > SCRATCH.length) {
      this.send(Buffer.from(size, "latin1"));
      this.send(piece);
      this.send(isLast ? Buffer.from(after, "latin1") : CHUNK_END);
      return;
    }
    SCRATCH.write(size, 0, "latin1");
    SCRATCH.set(piece, size.length);
    SCRATCH.write(after, size.length + piece.length, "latin1");
    this.#sendScratch(length);
  }

  #sendScratch(length: number): void {
    if (this.waitingBytes > 0) this.#keep(Buffer.from(SCRATCH.subarray(0, length)));
    else {
      const taken = Math.max(0, this.socket.write(SCRATCH, 0, length));
      if (taken < length) this.#keep(Buffer.from(SCRATCH.subarray(taken, length)));
    }
  }

  #sent(bytes: Uint8Array, written: number): void {
    const taken = Math.max(0, written);
    if (taken < bytes.length) this.#keep(taken === 0 ? bytes : bytes.subarray(taken));
  }

  #keep(bytes: Uint8Array): void {
    this.#waiting ??= [];
    this.#waiting.push(bytes);
    this.waitingBytes += bytes.length;
  }

  /** The socket takes more: as much as it does. */
  flush(): void {
    const waiting = this.#waiting;
    if (!waiting) return;
    let sent = 0;
    for (const bytes of waiting) {
      const taken = Math.max(0, this.socket.write(bytes));
      this.waitingBytes -= taken;
      if (taken < bytes.length) {
        waiting[sent] = bytes.subarray(taken);
        break;
      }
      sent++;
    }
    if (sent === waiting.length) this.#waiting = null;
    else waiting.splice(0, sent);
  }
}
