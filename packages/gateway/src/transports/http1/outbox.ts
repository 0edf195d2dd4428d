import type { Socket } from "bun";

/**
 * Where parts of a message are put together, so that they leave in one write. Shared by all connections: the
 * socket has taken the bytes, or a copy of the rest is kept, before anyone else runs.
 */
const SCRATCH = Buffer.allocUnsafeSlow(64 * 1024);
const CHUNK_END = Buffer.from("\r\n");
const FINAL_CHUNK_END = Buffer.from("\r\n0\r\n\r\n");
/** A size line, a line end and the last chunk. */
const FRAMING_BYTES_MAX = 32;
const ZERO = 48;
const HEX = Buffer.from("0123456789abcdef");

/** Digit by digit: a call into the runtime for a few bytes costs more than all of them. */
function writeSize(size: number, at: number): number {
  let shift = 0;
  while (size >>> shift > 15) shift += 4;
  for (; shift >= 0; shift -= 4) SCRATCH[at++] = HEX[(size >>> shift) & 15]!;
  return writeLineEnd(at);
}

function writeLineEnd(at: number): number {
  SCRATCH[at] = 13;
  SCRATCH[at + 1] = 10;
  return at + 2;
}

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
    const { length } = piece;
    if (before.length + length > SCRATCH.length - FRAMING_BYTES_MAX) {
      this.send(Buffer.from(`${before}${length.toString(16)}\r\n`, "latin1"));
      this.send(piece);
      this.send(isLast ? FINAL_CHUNK_END : CHUNK_END);
      return;
    }
    let at = before === "" ? 0 : SCRATCH.write(before, 0, "latin1");
    if (length > 0) {
      at = writeSize(length, at);
      SCRATCH.set(piece, at);
      at = writeLineEnd(at + length);
    }
    if (isLast) {
      SCRATCH[at] = ZERO;
      at = writeLineEnd(writeLineEnd(at + 1));
    }
    this.#sendScratch(at);
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
