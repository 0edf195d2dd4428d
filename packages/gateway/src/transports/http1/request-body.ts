import { ServiceError } from "../../kernel/errors.ts";
import { refuseLarge } from "../../kernel/http.ts";
import { BadRequest } from "./request-head.ts";

/** Digits of a chunk's size; more would not be a number that can be counted to. */
const SIZE_DIGITS_MAX = 12;
/** A size line with its extensions, or all trailers together. */
const FRAMING_BYTES_MAX = 8 * 1024;
/** Smaller pieces are copied together: a view costs more than it shows, and a chunk may be a single byte. */
const COPIED_BELOW_BYTES = 4 * 1024;
const COPY_BYTES = 16 * 1024;
const TAB = 9;
const LF = 10;
const CR = 13;
const SPACE = 32;
const SEMICOLON = 59;
const DELETE = 127;
const NOTHING = Buffer.alloc(0);

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

/** Collects a body that did not come with its head: of a declared length, or in chunks. */
export class RequestBody {
  #state: State;
  /** Bytes that are left of the body or of the current chunk. */
  #left: number;
  readonly #isChunked: boolean;
  #digits = 0;
  #framingBytes = 0;
  #pieces: Buffer[] = [];
  #bytes = 0;
  /** Where small pieces go; the part from `#copyFrom` to `#copyTo` is not among the pieces yet. */
  #copy = NOTHING;
  #copyFrom = 0;
  #copyTo = 0;
  #bytesMax = Number.POSITIVE_INFINITY;
  /** Nobody wants it; it is read only to find the next request. */
  #discards = false;
  #discardedBytes = 0;
  #failure: ServiceError | null = null;
  #taker: { resolve(body: Buffer): void; reject(error: unknown): void } | null = null;

  constructor(contentLength: number | null) {
    this.#isChunked = contentLength === null;
    this.#left = contentLength ?? 0;
    this.#state = this.#isChunked ? "size" : this.#left === 0 ? "done" : "data";
  }

  get isDone(): boolean {
    return this.#state === "done";
  }
  /** Somebody waits for the rest, or for its end. */
  get isAwaited(): boolean {
    return this.#taker !== null || this.#discards;
  }
  /** How much has come that nobody has taken. */
  get waitingBytes(): number {
    return this.#bytes;
  }
  /** How much has been read for nobody. */
  get discardedBytes(): number {
    return this.#discardedBytes;
  }
  /** How much is known to be still to come. */
  get leftBytes(): number {
    return this.#left;
  }

  /** How many of the bytes belong to the body. Throws BadRequest for what is no chunk. */
  feed(bytes: Buffer): number {
    let at = 0;
    while (at < bytes.length && this.#state !== "done")
      at = this.#state === "data" ? this.#readData(bytes, at) : this.#readFraming(bytes[at]!, at);
    if (this.#discards) this.#discardedBytes += at;
    if (this.#state === "done") this.#finish();
    return at;
  }

  #readData(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left);
    this.#left -= end - at;
    if (!this.#discards) {
      this.#keep(bytes.subarray(at, end));
      if (this.#bytes > this.#bytesMax) this.#refuse();
    }
    if (this.#left === 0) this.#state = this.#isChunked ? "after-data" : "done";
    return end;
  }

  #keep(piece: Buffer): void {
    this.#bytes += piece.length;
    if (piece.length >= COPIED_BELOW_BYTES) {
      this.#addCopied();
      this.#pieces.push(piece);
      return;
    }
    if (this.#copyTo + piece.length > this.#copy.length) {
      this.#addCopied();
      this.#copy = Buffer.allocUnsafeSlow(COPY_BYTES);
      this.#copyFrom = 0;
      this.#copyTo = 0;
    }
    this.#copy.set(piece, this.#copyTo);
    this.#copyTo += piece.length;
  }

  #addCopied(): void {
    if (this.#copyTo > this.#copyFrom) this.#pieces.push(this.#copy.subarray(this.#copyFrom, this.#copyTo));
    this.#copyFrom = this.#copyTo;
  }

  /** What stands between the chunks, a byte at a time: there are few of them. */
  #readFraming(byte: number, at: number): number {
    if (++this.#framingBytes > FRAMING_BYTES_MAX) throw new BadRequest(400, "a chunk's framing does not end");
    switch (this.#state) {
      case "size":
        this.#readSize(byte);
        break;
      case "extension":
        if (byte === CR) this.#state = "size-end";
        else requireText(byte);
        break;
      case "size-end":
        requireLineFeed(byte);
        this.#framingBytes = 0;
        this.#state = this.#left === 0 ? "line" : "data";
        break;
      case "after-data":
        if (byte !== CR) throw new BadRequest(400, "a chunk is longer than its size says");
        this.#state = "data-end";
        break;
      case "data-end":
        requireLineFeed(byte);
        this.#digits = 0;
        this.#framingBytes = 0;
        this.#state = "size";
        break;
      case "line":
      case "trailer":
        if (byte === CR) this.#state = this.#state === "line" ? "last-end" : "trailer-end";
        else {
          requireText(byte);
          this.#state = "trailer";
        }
        break;
      default:
        requireLineFeed(byte);
        this.#state = this.#state === "last-end" ? "done" : "line";
    }
    return at + 1;
  }

  #readSize(byte: number): void {
    const digit = hexDigit(byte);
    if (digit !== -1 && this.#digits < SIZE_DIGITS_MAX) {
      this.#digits++;
      this.#left = this.#left * 16 + digit;
    } else if (this.#digits > 0 && byte === CR) this.#state = "size-end";
    else if (this.#digits > 0 && byte === SEMICOLON) this.#state = "extension";
    else throw new BadRequest(400, "a chunk's size is not a number");
  }

  #finish(): void {
    const taker = this.#taker;
    this.#taker = null;
    taker?.resolve(this.#collected());
  }

  #collected(): Buffer {
    this.#addCopied();
    const pieces = this.#pieces;
    this.#pieces = [];
    return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
  }

  /** Someone waits for it who will not get it. */
  #refuse(): void {
    this.discard();
    try {
      refuseLarge(this.#bytesMax);
    } catch (error) {
      this.#reject(error);
    }
  }

  take(bytesMax: number): Buffer | Promise<Buffer> {
    if (this.#failure) throw this.#failure;
    if (this.#bytes + (this.#isChunked ? 0 : this.#left) > bytesMax) {
      this.discard();
      return refuseLarge(bytesMax);
    }
    if (this.isDone) return this.#collected();
    this.#bytesMax = bytesMax;
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    this.#taker = { resolve, reject };
    return promise;
  }

  discard(): void {
    this.#discards = true;
    this.#pieces = [];
    this.#bytes = 0;
    this.#copy = NOTHING;
    this.#copyFrom = 0;
    this.#copyTo = 0;
  }

  /** The rest will not come: whoever waits for it is told why, and so is who asks for it later. */
  failed(reason: string): void {
    if (this.isDone) return;
    this.#failure = new ServiceError("invalid_request", reason);
    this.discard();
    this.#reject(this.#failure);
  }

  #reject(error: unknown): void {
    const taker = this.#taker;
    this.#taker = null;
    taker?.reject(error);
  }
}

function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const letter = byte | 32;
  return letter >= 97 && letter <= 102 ? letter - 87 : -1;
}

function requireLineFeed(byte: number): void {
  if (byte !== LF) throw new BadRequest(400, "a chunk's line does not end with a line feed");
}

/** A line feed of its own ends a line for some and not for others. */
function requireText(byte: number): void {
  if ((byte < SPACE && byte !== TAB) || byte === DELETE)
    throw new BadRequest(400, "a chunk's line has a control character in it");
}
