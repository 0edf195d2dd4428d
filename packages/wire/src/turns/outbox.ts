import type { Socket } from "bun";

/**
 * Outgoing messages are assembled here and sent together at the end of the turn of the event loop, one socket after
 * the other. The reason is the same as for gathering what arrives (inbox.ts).
 */
const ARENA = Buffer.allocUnsafeSlow(256 * 1024);
/** Larger messages are not copied: their sending begins at once, after everything that is already queued. */
const MESSAGE_BYTES_MAX = 64 * 1024;
/** Space for a size line, a line end and the final chunk. */
const FRAMING_BYTES_MAX = 32;
/** The kernel copies what it is handed at once, so one connection pauses for a turn after this much. */
const PER_TURN_BYTES_MAX = 1024 * 1024;
const ZERO = 48;
const HEX = Buffer.from("0123456789abcdef");

/** Digit by digit: for a few bytes a call into the runtime costs more than the loop. */
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
/** The senders of the queued messages, in order, and where each one's bytes end. */
let senders: Outbox[] = [];
let ends: number[] = [];
let isScheduled = false;
let isFlushing = false;
/** What is to be done before anything else is sent. */
let first: (() => void)[] = [];
/** Messages queued while the arena was being sent; they go out afterwards. */
let late: { sender: Outbox; bytes: Uint8Array }[] = [];

/** Returns the offset of `length` free bytes in the arena. */
function reserve(length: number): number {
  if (used + length > ARENA.length) Outbox.flush();
  return used;
}

function atEndOfTurn(): void {
  isScheduled = false;
  Outbox.flush();
}

function schedule(): void {
  if (isScheduled) return;
  isScheduled = true;
  setImmediate(atEndOfTurn);
}

/**
 * Calls `run` once before anything more is sent on any connection, at the latest at the end of this turn of the event
 * loop. What an answer must not overtake, such as a line in a file, is then written once for all answers of a turn.
 * `run` must not throw or send.
 */
export function beforeSending(run: () => void): void {
  first.push(run);
  schedule();
}

/** To be called before anything is sent past the outbox, e.g. to another process that hands it on to a client. */
export function sendsElsewhere(): void {
  if (first.length > 0) doFirst();
}

function doFirst(): void {
  const due = first;
  first = [];
  for (const run of due) run();
}

/** What a socket belongs to; told when the socket accepts more. */
export interface Drainable {
  drained(): void;
}

/** The outgoing bytes of one connection. What its socket does not accept is kept, in order, until it drains. */
export class Outbox {
  #kept: Uint8Array[] | null = null;
  /** Bytes of large messages that the kernel was handed since the last pause of a turn. */
  #handedBytes = 0;
  /** Bytes that the socket has not accepted yet. */
  waitingBytes = 0;
  /** Whether the kernel has got any bytes since the owner last set this to false. */
  hasSent = false;

  constructor(readonly socket: Pick<Socket<Drainable>, "write" | "data">) {}

  /** Sends everything queued so far, on every connection. */
  static flush(): void {
    if (first.length > 0) doFirst();
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

  /** Always accepts everything. */
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
    // A UTF-16 code unit becomes at most three bytes of UTF-8.
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

  /** One chunk: `before` (a head, or nothing), the size, the bytes, and the final chunk if it is the last. */
  sendChunk(before: string, piece: Uint8Array | string, isLast: boolean): void {
    const length = typeof piece === "string" ? Buffer.byteLength(piece) : piece.length;
    if (before.length + length > MESSAGE_BYTES_MAX - FRAMING_BYTES_MAX || isFlushing) {
      if (length > 0) {
        this.send(Buffer.from(`${before}${length.toString(16)}\r\n`, "latin1"));
        this.send(typeof piece === "string" ? Buffer.from(piece) : piece);
      } else this.send(Buffer.from(before, "latin1"));
      const end = `${length > 0 ? "\r\n" : ""}${isLast ? "0\r\n\r\n" : ""}`;
      this.send(Buffer.from(end, "latin1"));
      return;
    }
    const start = reserve(before.length + length + FRAMING_BYTES_MAX);
    let at = before === "" ? start : start + ARENA.write(before, start, "latin1");
    if (length > 0) {
      at = writeSize(length, at);
      if (typeof piece === "string") ARENA.write(piece, at, "utf8");
      else ARENA.set(piece, at);
      at = writeLineEnd(at + length);
    }
    if (isLast) {
      ARENA[at] = ZERO;
      at = writeLineEnd(writeLineEnd(at + 1));
    }
    this.#added(at - start);
  }

  /** `length` bytes of this connection were written at the end of the arena. */
  #added(length: number): void {
    used += length;
    const last = senders.length - 1;
    if (senders[last] === this) ends[last] = used;
    else {
      senders.push(this);
      ends.push(used);
    }
    schedule();
  }

  #deliver(from: number, to: number): void {
    const taken = this.waitingBytes > 0 ? 0 : Math.max(0, this.socket.write(ARENA, from, to - from));
    this.hasSent ||= taken > 0;
    if (taken < to - from) this.#keep(Buffer.from(ARENA.subarray(from + taken, to)));
  }

  #sendNow(bytes: Uint8Array): void {
    Outbox.flush();
    const taken = this.waitingBytes > 0 ? 0 : this.#write(bytes);
    if (taken < bytes.length) this.#keep(taken === 0 ? bytes : bytes.subarray(taken));
  }

  /** Hands over some of the bytes; returns how many. */
  #write(bytes: Uint8Array): number {
    const length = Math.min(bytes.length, PER_TURN_BYTES_MAX - this.#handedBytes);
    if (length === 0) return 0;
    const taken = Math.max(0, this.socket.write(bytes, 0, length));
    this.hasSent ||= taken > 0;
    this.#handedBytes += taken;
    // The socket may not be full, and would not call back.
    if (this.#handedBytes === PER_TURN_BYTES_MAX)
      setImmediate(() => {
        this.#handedBytes = 0;
        this.socket.data.drained();
      });
    return taken;
  }

  #keep(bytes: Uint8Array): void {
    this.#kept ??= [];
    this.#kept.push(bytes);
    this.waitingBytes += bytes.length;
  }

  /** The socket accepts more: sends as much as it takes. */
  drained(): void {
    const kept = this.#kept;
    if (!kept) return;
    let sent = 0;
    for (const bytes of kept) {
      const taken = this.#write(bytes);
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
