/** Hex digits of a chunk size; more would exceed what a number holds exactly. */
const SIZE_DIGITS_MAX = 12;
/** Limit for one size line with its extensions, and for all trailers together. */
const FRAMING_BYTES_MAX = 8 * 1024;
const TAB = 9;
const LF = 10;
const CR = 13;
const SPACE = 32;
/** A character of a field's name. */
const TOKEN = /[!#$%&'*+\-.^_`|~\w]/;
/** Names, each with a token or a quoted text as its value or none. */
const EXTENSIONS =
  /^(?:;[!#$%&'*+\-.^_`|~\w]+(?:=(?:[!#$%&'*+\-.^_`|~\w]+|"(?:[\t !#-[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"))?)+$/;
const COLON = 58;
const SEMICOLON = 59;
const DELETE = 127;

/** What the next byte belongs to. The states that end in `-end` await the line feed after a carriage return. */
type State =
  | "size"
  | "extension"
  | "size-end"
  | "data"
  | "after-data"
  | "data-end"
  | "line"
  | "trailer-name"
  | "trailer"
  | "trailer-end"
  | "last-end"
  | "done";

export interface ChunkReader {
  piece(bytes: Buffer): void;
  /** The bytes are not a chunked body. */
  malformed(reason: string): never;
}

export interface ChunkRules {
  /**
   * Accepts bare line feeds, blanks after a size, and extensions and trailers of any form, which some servers send. Never for
   * requests: a proxy in front may disagree with us about where the next request begins.
   */
  isLenient: boolean;
}

/** Decodes a chunked body as its bytes arrive. Pieces are views of the input, not copies. */
export class ChunkDecoder {
  #state: State = "size";
  /** Bytes left of the current chunk. */
  #left = 0;
  #digits = 0;
  #framingBytes = 0;
  /** Of the current size line; not collected where any form is accepted. */
  #extensions = "";
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

  /** Returns where in `bytes` the body ends, or their length when it continues. */
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
      // Usually the line end is here too.
      if (bytes[end] === CR && bytes[end + 1] === LF) {
        this.#beginSize();
        next = end + 2;
      }
    }
    this.reader.piece(bytes.subarray(at, end));
    return next;
  }

  /** Fast path: the whole line at once when it is here and holds nothing but the size. */
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
    else if (byte === SEMICOLON) {
      this.#extensions = ";";
      this.#state = "extension";
    } else if (this.#isLenient && byte === LF) this.#sizeKnown();
    else if (this.#isLenient && (byte === SPACE || byte === TAB)) this.#state = "extension";
    else this.reader.malformed("a chunk's size is not a number");
  }

  #checkExtensions(): void {
    if (!this.#isLenient && this.#extensions !== "" && !EXTENSIONS.test(this.#extensions))
      this.reader.malformed("a chunk's extensions are malformed");
    this.#extensions = "";
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

  /** Everything else between chunks, byte by byte: there is little of it. */
  #readFraming(byte: number): void {
    if (++this.#framingBytes > FRAMING_BYTES_MAX) this.reader.malformed("a chunk's framing does not end");
    switch (this.#state) {
      case "extension":
        if (byte !== CR && !this.#isLenient) this.#extensions += String.fromCharCode(byte);
        this.#readLine(byte, "size-end");
        break;
      case "after-data":
        if (byte !== CR && !(this.#isLenient && byte === LF))
          this.reader.malformed("a chunk is longer than its size says");
        this.#readLine(byte, "data-end");
        break;
      case "line":
        if (byte === CR || byte === LF) this.#readLine(byte, "last-end");
        else if (this.#isLenient) {
          this.#state = "trailer";
          this.#readLine(byte, "trailer-end");
        } else {
          if (!isTokenByte(byte)) this.reader.malformed("a trailer is not a field line");
          this.#state = "trailer-name";
        }
        break;
      case "trailer-name":
        if (byte === COLON) this.#state = "trailer";
        else if (!isTokenByte(byte)) this.reader.malformed("a trailer is not a field line");
        break;
      case "trailer":
        this.#readLine(byte, "trailer-end");
        break;
      default:
        if (byte !== LF) this.reader.malformed("a chunk's line does not end with a line feed");
        this.#lineEnded(this.#state);
    }
  }

  /** One byte of a line; `end` is the state after its carriage return. */
  #readLine(byte: number, end: State): void {
    if (byte === CR) this.#state = end;
    else if (byte === LF && this.#isLenient) this.#lineEnded(end);
    // Parsers disagree on whether a bare line feed ends a line.
    else if ((byte < SPACE && byte !== TAB) || byte === DELETE)
      this.reader.malformed("a chunk's line has a control character in it");
  }

  #lineEnded(end: State): void {
    if (end === "size-end") {
      this.#checkExtensions();
      this.#sizeKnown();
    } else if (end === "data-end") this.#beginSize();
    else this.#state = end === "last-end" ? "done" : "line";
  }
}

const isTokenByte = (byte: number): boolean => TOKEN.test(String.fromCharCode(byte));

function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const letter = byte | 32;
  return letter >= 97 && letter <= 102 ? letter - 87 : -1;
}
