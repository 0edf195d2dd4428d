import { refuseLarge } from "../../kernel/http.ts";
import { BadRequest } from "./request-head.ts";

/** Digits of a chunk's size; more would not be a number that can be counted to. */
const SIZE_DIGITS_MAX = 12;
/** A size line with its extensions, or all trailers together. */
const FRAMING_BYTES_MAX = 8 * 1024;
const CR = 13;
const LF = 10;

type State = "size" | "extension" | "data" | "data-end" | "trailer" | "done";

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
  #bytesMax = Number.POSITIVE_INFINITY;
  /** Nobody wants it; it is read only to find the next request. */
  #discards = false;
  #taker: { resolve(body: Buffer): void; reject(error: unknown): void } | null = null;

  constructor(contentLength: number | null) {
    this.#isChunked = contentLength === null;
    this.#left = contentLength ?? 0;
    this.#state = this.#isChunked ? "size" : this.#left === 0 ? "done" : "data";
  }

  get isDone(): boolean {
    return this.#state === "done";
  }
  /** How much has come that nobody has taken. */
  get waitingBytes(): number {
    return this.#bytes;
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
    if (this.#state === "done") this.#finish();
    return at;
  }

  #readData(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left);
    this.#left -= end - at;
    if (!this.#discards) {
      this.#pieces.push(bytes.subarray(at, end));
      this.#bytes += end - at;
      if (this.#bytes > this.#bytesMax) this.#refuse();
    }
    if (this.#left === 0) this.#state = this.#isChunked ? "data-end" : "done";
    return end;
  }

  /** What stands between the chunks, a byte at a time: there are few of them. */
  #readFraming(byte: number, at: number): number {
    if (++this.#framingBytes > FRAMING_BYTES_MAX) throw new BadRequest(400, "a chunk's framing does not end");
    if (this.#state === "size") this.#readSize(byte);
    else if (this.#state === "extension") {
      if (byte === LF) this.#sizeKnown();
    } else if (this.#state === "data-end") {
      if (byte === LF) this.#nextChunk();
      else if (byte !== CR) throw new BadRequest(400, "a chunk is longer than its size says");
    } else if (byte === LF) {
      if (this.#digits === 0) this.#state = "done";
      this.#digits = 0;
    } else if (byte !== CR) this.#digits = 1;
    return at + 1;
  }

  #readSize(byte: number): void {
    const digit = Number.parseInt(String.fromCharCode(byte), 16);
    if (!Number.isNaN(digit)) {
      if (++this.#digits > SIZE_DIGITS_MAX) throw new BadRequest(400, "a chunk's size is not a number");
      this.#left = this.#left * 16 + digit;
    } else if (this.#digits === 0 || !/[\r; \t]/.test(String.fromCharCode(byte)))
      throw new BadRequest(400, "a chunk's size is not a number");
    else this.#state = "extension";
  }

  #nextChunk(): void {
    this.#framingBytes = 0;
    this.#digits = 0;
    this.#state = "size";
  }

  #sizeKnown(): void {
    this.#framingBytes = 0;
    // From here on it says whether the current trailer line has anything in it.
    this.#digits = 0;
    this.#state = this.#left === 0 ? "trailer" : "data";
  }

  #finish(): void {
    const taker = this.#taker;
    this.#taker = null;
    taker?.resolve(this.#collected());
  }

  #collected(): Buffer {
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
      this.failed(error);
    }
  }

  take(bytesMax: number): Buffer | Promise<Buffer> {
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
  }

  /** The rest will not come. */
  failed(error: unknown): void {
    const taker = this.#taker;
    this.#taker = null;
    taker?.reject(error);
  }
}
