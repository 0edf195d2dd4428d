/** Digits of a chunk's size; more would not be a number that can be counted to. */
const SIZE_DIGITS_MAX = 12;
/** A size line with its extensions, or all trailers together. */
const FRAMING_BYTES_MAX = 8 * 1024;
const TAB = 9;
const LF = 10;
const CR = 13;
const SPACE = 32;
const SEMICOLON = 59;
const DELETE = 127;

/** Where in a body the next byte is; of the ends of lines the line feed is a place of its own. */
type State =
  | "size"
  | "extension"
  | "size-end"
  | "data"
  | "after-data"
  | "data-end"
  | "line"
  | "trailer"
  | "trailer-end"
  | "last-end"
  | "done";

export interface ChunkReader {
  piece(bytes: Buffer): void;
  /** What came is no body in chunks. */
  malformed(reason: string): never;
}

export interface ChunkRules {
  /**
   * Lines may end in a line feed alone, and a size may have blanks behind it, as some servers write. Never for
   * what clients send: a proxy in front of us may see the next request begin elsewhere than we do.
   */
  isLenient: boolean;
}

/** Reads a body in chunks as its bytes arrive. Pieces are views of what came in, not copies. */
export class ChunkDecoder {
  #state: State = "size";
  /** Bytes that are left of the current chunk. */
  #left = 0;
  #digits = 0;
  #framingBytes = 0;
  readonly #isLenient: boolean;

  constructor(
    readonly reader: ChunkReader,
    { isLenient }: ChunkRules,
  ) {
    this.#isLenient = isLenient;
  }

  get isDone(): boolean {
    return this.#state === "done";
  }
  get leftBytes(): number {
    return this.#left;
  }

  /** Where in the bytes the body ends, or their end when it goes on. */
  feed(bytes: Buffer, from: number): number {
    let at = from;
    while (at < bytes.length && this.#state !== "done") {
      if (this.#state === "data") at = this.#readData(bytes, at);
      else if (this.#state === "size") at = this.#readSize(bytes, at);
      else this.#readFraming(bytes[at++]!);
    }
    return at;
  }

  #readData(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left);
    this.#left -= end - at;
    let next = end;
    if (this.#left === 0) {
      this.#state = "after-data";
      // Mostly the whole end of the line is here too.
      if (bytes[end] === CR && bytes[end + 1] === LF) {
        this.#beginSize();
        next = end + 2;
      }
    }
    this.reader.piece(bytes.subarray(at, end));
    return next;
  }

  /** The whole line at once when it is here and says nothing but the size. */
  #readSize(bytes: Buffer, at: number): number {
    let next = at;
    for (; next < bytes.length; next++) {
      const digit = hexDigit(bytes[next]!);
      if (digit === -1) break;
      if (++this.#digits > SIZE_DIGITS_MAX) this.reader.malformed("a chunk's size is not a number");
      this.#left = this.#left * 16 + digit;
    }
    if (next === bytes.length) return next;
    if (this.#digits === 0) this.reader.malformed("a chunk's size is not a number");
    if (bytes[next] === CR && bytes[next + 1] === LF) {
      this.#sizeKnown();
      return next + 2;
    }
    this.#endSize(bytes[next]!);
    return next + 1;
  }

  #endSize(byte: number): void {
    if (byte === CR) this.#state = "size-end";
    else if (byte === SEMICOLON) this.#state = "extension";
    else if (this.#isLenient && byte === LF) this.#sizeKnown();
    else if (this.#isLenient && (byte === SPACE || byte === TAB)) this.#state = "extension";
    else this.reader.malformed("a chunk's size is not a number");
  }

  #sizeKnown(): void {
    this.#framingBytes = 0;
    this.#state = this.#left === 0 ? "line" : "data";
  }

  #beginSize(): void {
    this.#digits = 0;
    this.#framingBytes = 0;
    this.#state = "size";
  }

  /** What else stands between the chunks, a byte at a time: there are few of them. */
  #readFraming(byte: number): void {
    if (++this.#framingBytes > FRAMING_BYTES_MAX) this.reader.malformed("a chunk's framing does not end");
    switch (this.#state) {
      case "extension":
        this.#readLine(byte, "size-end");
        break;
      case "after-data":
        if (byte !== CR && !(this.#isLenient && byte === LF))
          this.reader.malformed("a chunk is longer than its size says");
        this.#readLine(byte, "data-end");
        break;
      case "line":
        if (byte === CR || byte === LF) this.#readLine(byte, "last-end");
        else {
          this.#state = "trailer";
          this.#readLine(byte, "trailer-end");
        }
        break;
      case "trailer":
        this.#readLine(byte, "trailer-end");
        break;
      default:
        if (byte !== LF) this.reader.malformed("a chunk's line does not end with a line feed");
        this.#lineEnded(this.#state);
    }
  }

  /** A byte of a line; the state that is given comes when only its line feed is missing. */
  #readLine(byte: number, end: State): void {
    if (byte === CR) this.#state = end;
    else if (byte === LF && this.#isLenient) this.#lineEnded(end);
    // A line feed of its own ends a line for some and not for others.
    else if ((byte < SPACE && byte !== TAB) || byte === DELETE)
      this.reader.malformed("a chunk's line has a control character in it");
  }

  #lineEnded(end: State): void {
    if (end === "size-end") this.#sizeKnown();
    else if (end === "data-end") this.#beginSize();
    else this.#state = end === "last-end" ? "done" : "line";
  }
}

function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const letter = byte | 32;
  return letter >= 97 && letter <= 102 ? letter - 87 : -1;
}
