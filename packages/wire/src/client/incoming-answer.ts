import { headRead } from "../turns/collector.ts";
import {
  answerTooLarge,
  type Flow,
  type HttpAnswer,
  type OriginOptions,
  type PieceReader,
} from "./answer.ts";
import { headersLike, type ResponseEvents, type ResponseHead } from "./response-parser.ts";

/** Buffered bytes before anything reads them; then the connection is paused. */
const UNREAD_BYTES_MAX = 256 * 1024;
/** A declared length up to this size is allocated at once; beyond it, memory grows with what arrives. */
const RESERVED_BYTES_MAX = 8 * 1024 * 1024;

/** What an answer needs of its connection. */
export interface Carrier {
  /** The kernel has got some of the request. */
  readonly hasSent: boolean;
  pause(): void;
  resume(): void;
  /** The rest is not needed: the connection is worth keeping only if the answer ends soon. */
  linger(): void;
  /** The exchange is over; says whether the connection may carry another one. */
  done(isReusable: boolean): void;
}

/** Waits for the whole body. */
interface Taker {
  bytesMax: number;
  resolve: (body: Buffer) => void;
  reject: (error: unknown) => void;
}

/** An answer on its way, whatever carries it. It is handed over as a whole or in pieces, when the caller asks for it. */
export class IncomingAnswer implements HttpAnswer, ResponseEvents, Flow {
  #answerHead: ResponseHead | null = null;
  #carrier: Carrier | null = null;
  /** What arrived before the caller asked, or while the whole body is being collected. */
  #pieces: Buffer[] = [];
  #waitingBytes = 0;
  /** The whole body, allocated at its declared length and filled as it arrives. */
  #whole: Buffer | null = null;
  #reader: PieceReader | null = null;
  /** Becomes the reader at its first `resume`. */
  #piped: PieceReader | null = null;
  #taker: Taker | null = null;
  #failure: unknown = null;
  #isPaused = false;
  /** The rest is not needed. */
  #discards = false;
  #isWhole = false;
  #settled = false;
  readonly #answering = Promise.withResolvers<HttpAnswer>();

  constructor(readonly errors: Pick<OriginOptions, "failure" | "errorOf">) {}

  /** Resolves with a 2xx answer once its head has arrived. */
  get answered(): Promise<HttpAnswer> {
    return this.#answering.promise;
  }
  get status(): number {
    return this.#answerHead!.status;
  }
  get statusText(): string {
    return this.#answerHead!.statusText;
  }
  get contentType(): string {
    return this.#answerHead!.contentType;
  }
  get retryAfter(): string | null {
    return this.#answerHead!.retryAfter;
  }
  headersLike(names: RegExp): Record<string, string> {
    return headersLike(this.#answerHead!.text, names);
  }
  /** Finished, one way or the other. */
  get isOver(): boolean {
    return this.#settled;
  }

  /** None of it has left this process. */
  get isUnsent(): boolean {
    return !this.#settled && !this.#carrier?.hasSent;
  }

  /** Its answer comes by this connection from now on. */
  carriedBy(carrier: Carrier): void {
    this.#carrier = carrier;
  }

  /** Ends it with an error, for everything that waits on it. */
  failed(error: unknown): void {
    if (this.#settled) return;
    this.#failure = error;
    this.over(false);
    this.#answering.reject(error);
    this.#taker?.reject(error);
    this.#taker = null;
    this.#reader?.failed(error);
    this.#reader = null;
  }

  /** Nothing more comes; says whether the connection may carry another. */
  over(isReusable: boolean): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#carrier?.done(isReusable);
    this.#carrier = null;
  }

  // What arrives.

  headed(head: ResponseHead): void {
    this.#answerHead = head;
    headRead();
    if (head.status >= 200 && head.status < 300) this.#answering.resolve(this);
    else this.#answering.resolve(this.errors.errorOf(this).then((error) => Promise.reject(error)));
  }

  piece(bytes: Buffer): void {
    if (this.#reader) this.#reader.piece(bytes);
    else if (this.#discards) return;
    else if (this.#whole) this.#waitingBytes += bytes.copy(this.#whole, this.#waitingBytes);
    else {
      this.#pieces.push(bytes);
      this.#waitingBytes += bytes.length;
      if (!this.#taker) {
        if (this.#waitingBytes > UNREAD_BYTES_MAX) this.#carrier?.pause();
      } else if (this.#waitingBytes > this.#taker.bytesMax) this.failed(this.#tooLarge(this.#taker.bytesMax));
    }
  }

  /** What has come of the answer in this turn is handed over. */
  flush(): void {
    this.#reader?.flush();
  }

  end(): void {
    this.#isWhole = true;
    this.#reader?.end();
    this.#reader = null;
    this.#taker?.resolve(this.#collected());
    this.#taker = null;
  }

  // Calls of the user.

  bytes(bytesMax: number): Buffer | Promise<Buffer> {
    if (this.#failure) return Promise.reject(this.#failure);
    const { contentLength } = this.#answerHead!;
    if (this.#waitingBytes > bytesMax || (contentLength ?? 0) > bytesMax) {
      const error = this.#tooLarge(bytesMax);
      this.failed(error);
      return Promise.reject(error);
    }
    if (this.#isWhole) return this.#collected();
    if (contentLength !== null && contentLength <= RESERVED_BYTES_MAX) this.#reserve(contentLength);
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    this.#taker = { bytesMax, resolve, reject };
    this.#carrier?.resume();
    return promise;
  }

  #tooLarge(bytesMax: number): Error {
    return this.errors.failure("too_large", answerTooLarge(bytesMax));
  }

  #reserve(length: number): void {
    const whole = Buffer.allocUnsafeSlow(length);
    let at = 0;
    for (const piece of this.#pieces) at += piece.copy(whole, at);
    this.#pieces = [];
    this.#whole = whole;
  }

  #collected(): Buffer {
    if (this.#whole) return this.#whole;
    return this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces);
  }

  pipe(reader: PieceReader): Flow {
    this.#piped = reader;
    return this;
  }

  pause(): void {
    this.#isPaused = true;
    this.#carrier?.pause();
  }

  resume(): void {
    this.#isPaused = false;
    if (this.#piped) this.#begin(this.#piped);
    // The pieces just handed over may have made it pause.
    if (!this.#isPaused) this.#carrier?.resume();
  }

  /** Hands over what has arrived so far. */
  #begin(reader: PieceReader): void {
    this.#piped = null;
    if (this.#failure) {
      reader.failed(this.#failure);
      return;
    }
    this.#reader = reader;
    const pieces = this.#pieces;
    this.#pieces = [];
    for (const piece of pieces) this.#reader?.piece(piece);
    this.#reader?.flush();
    if (this.#isWhole) this.end();
  }

  leave(): void {
    this.#reader = null;
    this.#discards = true;
    this.#carrier?.linger();
  }
  cancel(): void {
    this.#reader = null;
    this.#discards = true;
    this.over(false);
  }
}
