/** A longer line is relayed unread. */
const PENDING_BYTES_MAX = 1024 * 1024;
const BYTE_ORDER_MARK = Buffer.from("\ufeff");
const CR = 13;
const LF = 10;
const CARRIAGE_RETURN = Uint8Array.of(CR);

/** Decodes a view directly: wrapping it in a Buffer costs more than the rest of a typical event. */
export const textOfBytes = (
  bytes: Uint8Array,
  encoding: "latin1" | "utf8",
  start = 0,
  end = bytes.length,
): string => Buffer.prototype.toString.call(bytes, encoding, start, end);

export const joined = (parts: Uint8Array[]): Uint8Array | null =>
  parts.length === 0 ? null : parts.length === 1 ? parts[0]! : Buffer.concat(parts);

/** What happens to a data line: pass it, drop it, replace it, or end the stream before it. */
export type Verdict = "keep" | "drop" | "end" | { replacement: string };

export interface EventReader {
  /** A data line between two positions; `text` is `bytes` in Latin-1. `partial`: the event has more lines. */
  line(bytes: Uint8Array, text: string, from: number, end: number): Verdict | "partial";
  event(data: string): Exclude<Verdict, "keep">;
  unread(bytes: number): void;
  broke(problem: string): void;
}

/** Splits an event stream into lines for a reader, and passes on what the reader keeps. */
export class EventLines {
  readonly #lineEnds = new LineEnds();
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #passing = false;
  #dropBlank = false;
  /** The last line passed on was blank, so a new event may begin. */
  #atBoundary = true;
  /** The data so far of an event with several data lines. */
  #partial: string | null = null;

  constructor(readonly reader: EventReader) {}

  get atBoundary(): boolean {
    return this.#atBoundary && !this.#passing;
  }

  /** Takes bytes from the upstream and returns those for the client; null if there are none yet. */
  feed(piece: Uint8Array): Uint8Array | null {
    const bytes = this.#lineEnds.feed(piece);
    if (bytes.length === 0) return null;
    if (!this.#passing && this.#pendingBytes === 0) return this.#lines(bytes);
    const newline = bytes.indexOf(LF);
    if (newline === -1) return this.#continueLine(bytes);
    if (!this.#passing) return this.#lines(Buffer.concat([...this.#takePending(), bytes]));
    this.#passing = false;
    this.reader.unread(newline);
    const passed = bytes.subarray(0, newline + 1);
    const rest = this.#lines(bytes.subarray(newline + 1));
    return rest ? Buffer.concat([passed, rest]) : passed;
  }

  flush(): Uint8Array | null {
    const rest = this.#lineEnds.end();
    if (this.#pendingBytes + rest.length === 0 && this.#partial === null) return null;
    return this.#lines(Buffer.concat([...this.#takePending(), rest, Buffer.from("\n\n")]));
  }

  #takePending(): Uint8Array[] {
    const pending = this.#pending;
    this.#pending = [];
    this.#pendingBytes = 0;
    return pending;
  }

  /** Part of an unfinished line: kept until it ends, or passed on once it is too long to keep. */
  #continueLine(bytes: Uint8Array): Uint8Array | null {
    if (!this.#passing) {
      this.#pending.push(bytes);
      this.#pendingBytes += bytes.length;
      if (this.#pendingBytes <= PENDING_BYTES_MAX) return null;
      this.#passing = true;
      this.#atBoundary = false;
      this.reader.unread(this.#pendingBytes);
      return Buffer.concat(this.#takePending());
    }
    this.reader.unread(bytes.length);
    return bytes;
  }

  #lines(bytes: Uint8Array): Uint8Array | null {
    // In Latin-1, offsets in the text equal offsets in the bytes, and no character can be split.
    const text = textOfBytes(bytes, "latin1");
    const parts: Uint8Array[] = [];
    let keptFrom = 0;
    let at = 0;
    for (let newline = text.indexOf("\n"); newline !== -1; newline = text.indexOf("\n", at)) {
      const end = newline > at && text.charCodeAt(newline - 1) === 13 ? newline - 1 : newline;
      const verdict = this.#line(bytes, text, at, end);
      const next = newline + 1;
      if (verdict !== "keep") {
        if (at > keptFrom) parts.push(bytes.subarray(keptFrom, at));
        keptFrom = next;
        if (verdict === "end") return joined(parts);
        if (verdict !== "drop") {
          parts.push(Buffer.from(verdict.replacement));
          keptFrom = end;
        }
      }
      at = next;
    }
    if (at > keptFrom) {
      if (parts.length === 0 && keptFrom === 0 && at === bytes.length) return bytes;
      parts.push(bytes.subarray(keptFrom, at));
    }
    if (at < bytes.length) {
      const started = this.#continueLine(bytes.subarray(at));
      if (started) parts.push(started);
    }
    return joined(parts);
  }

  #line(bytes: Uint8Array, text: string, start: number, end: number): Verdict {
    if (start === end) return this.#partial === null ? this.#blank() : this.#wholeEvent(this.#partial);
    const wasAtBoundary = this.#atBoundary;
    this.#atBoundary = false;
    const isBare = end - start === 4 && text.startsWith("data", start);
    if (!isBare && !text.startsWith("data:", start)) return "keep";
    const from = isBare ? end : text.charCodeAt(start + 5) === 32 ? start + 6 : start + 5;
    const verdict = this.#partial === null ? this.reader.line(bytes, text, from, end) : "partial";
    if (verdict === "partial") return this.#addLine(textOfBytes(bytes, "utf8", from, end));
    if (verdict === "drop" || verdict === "end") {
      this.#atBoundary = wasAtBoundary;
      // Keep the blank line if other lines of the event were passed on.
      this.#dropBlank = verdict === "drop" && wasAtBoundary;
    }
    return verdict;
  }

  #blank(): Verdict {
    const drop = this.#dropBlank;
    this.#dropBlank = false;
    if (!drop) this.#atBoundary = true;
    return drop ? "drop" : "keep";
  }

  /** One of several data lines, which are read together at the end of the event. */
  #addLine(data: string): Verdict {
    this.#partial = this.#partial === null ? data : `${this.#partial}\n${data}`;
    if (this.#partial.length <= PENDING_BYTES_MAX) return "drop";
    this.reader.broke("the upstream sent an event that is too long");
    return "end";
  }

  #wholeEvent(data: string): Verdict {
    this.#partial = null;
    this.#atBoundary = true;
    const verdict = this.reader.event(data);
    return typeof verdict === "string" ? verdict : { replacement: `${verdict.replacement}\n` };
  }
}

/** Turns lone CRs into LFs and strips a byte order mark, both rare. Other bytes pass unchanged. */
export class LineEnds {
  /** Bytes that may begin a byte order mark; null once that is decided. */
  #opening: Uint8Array | null = new Uint8Array();
  /** The last piece ended with a CR, which may be half of a CRLF. */
  #heldCr = false;

  feed(bytes: Uint8Array): Uint8Array {
    const begun = this.#opening === null ? bytes : this.#begin(Buffer.concat([this.#opening, bytes]));
    if (!this.#heldCr && begun.indexOf(CR) === -1) return begun;
    return this.#withLineFeeds(this.#heldCr ? Buffer.concat([CARRIAGE_RETURN, begun]) : begun);
  }

  end(): Uint8Array {
    const rest = this.#opening ?? new Uint8Array();
    this.#opening = null;
    return this.#heldCr ? Uint8Array.of(LF) : rest;
  }

  #begin(bytes: Buffer): Uint8Array {
    const length = Math.min(bytes.length, BYTE_ORDER_MARK.length);
    const mayBeMark = bytes.subarray(0, length).equals(BYTE_ORDER_MARK.subarray(0, length));
    const isWhole = length === BYTE_ORDER_MARK.length;
    this.#opening = mayBeMark && !isWhole ? bytes : null;
    if (!mayBeMark) return bytes;
    return bytes.subarray(isWhole ? BYTE_ORDER_MARK.length : bytes.length);
  }

  #withLineFeeds(bytes: Uint8Array): Uint8Array {
    this.#heldCr = bytes.at(-1) === CR;
    const known = this.#heldCr ? bytes.subarray(0, -1) : bytes;
    let changed: Uint8Array | null = null;
    for (let at = known.indexOf(CR); at !== -1; at = known.indexOf(CR, at + 1)) {
      if (known[at + 1] === LF) continue;
      changed ??= Uint8Array.from(known);
      changed[at] = LF;
    }
    return changed ?? known;
  }
}
