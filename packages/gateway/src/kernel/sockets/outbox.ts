import type { Socket } from "bun";

/**
 * Where messages wait, put together from their parts, until the turn of the event loop is over; then all of them
 * are sent, one after the other. See inbox.ts for why: it is the same the other way round.
 */
const ARENA = Buffer.allocUnsafeSlow(256 * 1024);
/** Larger ones are not copied; they are sent at once, after everything that waits. */
const MESSAGE_BYTES_MAX = 64 * 1024;
/** A size line, a line end and the last chunk. */
const FRAMING_BYTES_MAX = 32;
const ZERO = 48;
const HEX = Buffer.from("0123456789abcdef");

/** Digit by digit: a call into the runtime for a few bytes costs more than all of them. */
function writeSize(size: number, at: number): number {
  let shift = 0;
  while (size >>> shift > 15) shift += 4;
  for (; shift >= 0; shift -= 4) ARENA[at++] = HEX[(size >>> shift) & 15]!;
  return writeLineEnd(at);
}

function writeLineEnd(at: number): number {
  ARENA[at] = 13;
  ARENA[at + 1] = 10;
  return at + 2;
}

/** Bytes of the arena in use. */
let used = 0;
/** Whose messages lie there, in order, and where each ends. */
let senders: Outbox[] = [];
let ends: number[] = [];
let isScheduled = false;
let isFlushing = false;
/** What somebody had to say while the arena was being sent: it comes after that. */
let late: { sender: Outbox; bytes: Uint8Array }[] = [];

/** Room for a message in the arena. */
function reserve(length: number): number {
  if (used + length > ARENA.length) Outbox.flush();
  return used;
}

function atEndOfTurn(): void {
  isScheduled = false;
  Outbox.flush();
}

/** What a connection has to send: with the turn's other messages, as far as the socket takes it; kept in order beyond. */
export class Outbox {
  #kept: Uint8Array[] | null = null;
  /** What the socket did not take; it says when it takes more. */
  waitingBytes = 0;

  constructor(readonly socket: Pick<Socket<unknown>, "write">) {}

  /** Sends what the turn has brought so far, on every connection. */
  static flush(): void {
    if (senders.length === 0 || isFlushing) return;
    isFlushing = true;
    const to = senders;
    const until = ends;
    senders = [];
    ends = [];
    for (let i = 0, from = 0; i < to.length; from = until[i]!, i++) to[i]!.#deliver(from, until[i]!);
    used = 0;
    isFlushing = false;
    const rest = late;
    late = [];
    for (const { sender, bytes } of rest) sender.#sendNow(bytes);
  }

  /** Everything is taken. */
  send(bytes: Uint8Array): void {
    const { length } = bytes;
    if (length === 0) return;
    if (isFlushing) late.push({ sender: this, bytes });
    else if (length > MESSAGE_BYTES_MAX) this.#sendNow(bytes);
    else {
      ARENA.set(bytes, reserve(length));
      this.#added(length);
    }
  }

  /** A head in Latin-1 and a body. */
  sendMessage(head: string, body: Uint8Array | string): void {
    // Three bytes are the most that one unit of a string becomes.
    const lengthMax = head.length + (typeof body === "string" ? body.length * 3 : body.length);
    if (lengthMax > MESSAGE_BYTES_MAX || isFlushing) {
      this.send(Buffer.from(head, "latin1"));
      this.send(typeof body === "string" ? Buffer.from(body) : body);
      return;
    }
    const at = reserve(lengthMax);
    const bodyAt = at + ARENA.write(head, at, "latin1");
    if (typeof body !== "string") {
      ARENA.set(body, bodyAt);
      this.#added(lengthMax);
    } else this.#added(head.length + ARENA.write(body, bodyAt, "utf8"));
  }

  /** A piece of a body whose length nobody knows: with what stands before it, its size, and the end if it is the last. */
  sendChunk(before: string, piece: Uint8Array, isLast: boolean): void {
    const { length } = piece;
    if (before.length + length > MESSAGE_BYTES_MAX - FRAMING_BYTES_MAX || isFlushing) {
      if (length > 0) {
        this.send(Buffer.from(`${before}${length.toString(16)}\r\n`, "latin1"));
        this.send(piece);
      } else this.send(Buffer.from(before, "latin1"));
      const end = `${length > 0 ? "\r\n" : ""}${isLast ? "0\r\n\r\n" : ""}`;
      this.send(Buffer.from(end, "latin1"));
      return;
    }
    const start = reserve(before.length + length + FRAMING_BYTES_MAX);
    let at = before === "" ? start : start + ARENA.write(before, start, "latin1");
    if (length > 0) {
      at = writeSize(length, at);
      ARENA.set(piece, at);
      at = writeLineEnd(at + length);
    }
    if (isLast) {
      ARENA[at] = ZERO;
      at = writeLineEnd(writeLineEnd(at + 1));
    }
    this.#added(at - start);
  }

  /** A message of this connection now lies at the end of the arena. */
  #added(length: number): void {
    used += length;
    const last = senders.length - 1;
    if (senders[last] === this) ends[last] = used;
    else {
      senders.push(this);
      ends.push(used);
    }
    if (isScheduled) return;
    isScheduled = true;
    setImmediate(atEndOfTurn);
  }

  #deliver(from: number, to: number): void {
    const taken = this.waitingBytes > 0 ? 0 : Math.max(0, this.socket.write(ARENA, from, to - from));
    if (taken < to - from) this.#keep(Buffer.from(ARENA.subarray(from + taken, to)));
  }

  #sendNow(bytes: Uint8Array): void {
    Outbox.flush();
    const taken = this.waitingBytes > 0 ? 0 : Math.max(0, this.socket.write(bytes));
    if (taken < bytes.length) this.#keep(taken === 0 ? bytes : bytes.subarray(taken));
  }

  #keep(bytes: Uint8Array): void {
    this.#kept ??= [];
    this.#kept.push(bytes);
    this.waitingBytes += bytes.length;
  }

  /** The socket takes more: as much as it does. */
  drained(): void {
    const kept = this.#kept;
    if (!kept) return;
    let sent = 0;
    for (const bytes of kept) {
      const taken = Math.max(0, this.socket.write(bytes));
      this.waitingBytes -= taken;
      if (taken < bytes.length) {
        kept[sent] = bytes.subarray(taken);
        break;
      }
      sent++;
    }
    if (sent === kept.length) this.#kept = null;
    else kept.splice(0, sent);
  }
}
