import { ChunkDecoder, type ChunkReader } from "../http/chunks.ts";
import { BadRequest, tooLarge } from "../http/request.ts";
import { Pieces } from "../pieces.ts";
import { BODY_BYTES_PER_SECOND_MIN, BODY_SILENCE_MS } from "./limits.ts";

/** Collects a body that did not arrive whole with its head: of a declared length, or chunked. */
export class RequestBody implements ChunkReader {
  /** Null when the length is declared. */
  readonly #chunks: ChunkDecoder | null;
  /** Bytes left of the declared length. */
  #left: number;
  #pieces = new Pieces();
  /** The room for a body of declared length that somebody takes: joining a large one at its end would hold up others. */
  #whole: Buffer | null = null;
  #wholeBytes = 0;
  #bytesMax = Number.POSITIVE_INFINITY;
  /** Read only to find the next request. */
  #discards = false;
  #discardedBytes = 0;
  #receivedBytes = 0;
  /** Since when the handler waits for it. */
  #awaitedSinceMs: number | null = null;
  #failure: BadRequest | null = null;
  #taker: { resolve(body: Buffer): void; reject(error: unknown): void } | null = null;

  constructor(contentLength: number | null) {
    this.#chunks = contentLength === null ? new ChunkDecoder(this, { isLenient: false }) : null;
    this.#left = contentLength ?? 0;
  }

  get isDone(): boolean {
    return this.#chunks?.isDone ?? this.#left === 0;
  }
  /** The rest is needed, if only to skip it. */
  get isAwaited(): boolean {
    return this.#taker !== null || this.#discards;
  }
  /** Bytes that are held. */
  get waitingBytes(): number {
    return this.#pieces.bytes + this.#wholeBytes;
  }
  /** Bytes that were read and thrown away. */
  get discardedBytes(): number {
    return this.#discardedBytes;
  }
  /** Bytes that are known to be still to come. */
  get leftBytes(): number {
    return this.#chunks?.leftBytes ?? this.#left;
  }

  /** The deadline for the next bytes, once the body is awaited. */
  dueMs(nowMs: number): number {
    this.#awaitedSinceMs ??= nowMs;
    const paceMs = (this.#receivedBytes / BODY_BYTES_PER_SECOND_MIN) * 1_000;
    return Math.min(nowMs, this.#awaitedSinceMs + paceMs) + BODY_SILENCE_MS;
  }

  /** Returns how many of the bytes belong to the body. Throws BadRequest when they are not valid chunks. */
  feed(bytes: Buffer): number {
    const end = this.#chunks ? this.#chunks.feed(bytes, 0) : Math.min(bytes.length, this.#left);
    if (!this.#chunks) {
      this.#left -= end;
      this.piece(bytes.subarray(0, end));
    }
    this.#receivedBytes += end;
    if (this.#discards) this.#discardedBytes += end;
    if (this.isDone) this.#finish();
    return end;
  }

  piece(bytes: Buffer): void {
    if (this.#discards) return;
    if (this.#whole) {
      this.#wholeBytes += bytes.copy(this.#whole, this.#wholeBytes);
      return;
    }
    this.#pieces.add(bytes);
    if (this.#pieces.bytes > this.#bytesMax) this.#refuse();
  }

  malformed(reason: string): never {
    throw new BadRequest(400, reason);
  }

  #finish(): void {
    const taker = this.#taker;
    this.#taker = null;
    taker?.resolve(this.#collected());
  }

  #collected(): Buffer {
    const body = this.#whole ?? this.#pieces.join();
    this.#drop();
    return body;
  }

  #drop(): void {
    this.#pieces = new Pieces();
    this.#whole = null;
    this.#wholeBytes = 0;
  }

  /** Larger than the taker allows. */
  #refuse(): void {
    this.discard();
    this.#reject(tooLarge(this.#bytesMax));
  }

  take(bytesMax: number): Buffer | Promise<Buffer> {
    if (this.#failure) throw this.#failure;
    if (this.#pieces.bytes + this.#left > bytesMax) {
      this.discard();
      throw tooLarge(bytesMax);
    }
    if (this.isDone) return this.#collected();
    this.#bytesMax = bytesMax;
    if (!this.#chunks) this.#reserve();
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    this.#taker = { resolve, reject };
    return promise;
  }

  /** Memory that nothing is written to costs nothing, so a client cannot take it by its claim alone. */
  #reserve(): void {
    this.#whole = Buffer.allocUnsafeSlow(this.#pieces.bytes + this.#left);
    this.#wholeBytes = this.#pieces.join().copy(this.#whole);
    this.#pieces = new Pieces();
  }

  discard(): void {
    this.#discards = true;
    this.#drop();
  }

  /** The rest will not arrive: rejects the taker, present or future. */
  failed(reason: string): void {
    if (this.isDone) return;
    this.#failure = new BadRequest(400, reason);
    this.discard();
    this.#reject(this.#failure);
  }

  #reject(error: unknown): void {
    const taker = this.#taker;
    this.#taker = null;
    taker?.reject(error);
  }
}
