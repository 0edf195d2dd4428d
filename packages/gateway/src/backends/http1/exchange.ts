import { headRead } from "../../kernel/sockets/tidying.ts";
import {
  type Answer,
  BackendError,
  type Flow,
  type HttpAnswer,
  type OriginOptions,
  type PieceReader,
} from "../contract.ts";
import { tooLarge } from "../shared/response-answer.ts";
import { type ResponseEvents, type ResponseHead, ResponseParser } from "./response-parser.ts";

/** What may wait for a reader that has not come yet; then the connection is not read on. */
const UNREAD_BYTES_MAX = 256 * 1024;
/** Room for a declared length is taken at once up to here, and beyond as the bytes really come. */
const RESERVED_BYTES_MAX = 8 * 1024 * 1024;

/** What an exchange needs of the connection that it runs on. */
export interface Carrier {
  pause(): void;
  resume(): void;
  /** Nobody reads the rest any more: the connection is worth keeping only if that ends soon. */
  linger(): void;
  /** The exchange is over; the connection may carry another one, or must not. */
  done(isReusable: boolean): void;
}

/** Who takes the whole body. */
interface Taker {
  bytesMax: number;
  resolve: (body: Buffer) => void;
  reject: (error: unknown) => void;
}

/** One request and its answer: parses what arrives and hands it to whoever wants it, when they want it. */
export class Exchange implements HttpAnswer, ResponseEvents, Flow {
  #answerHead: ResponseHead | null = null;
  readonly #parser = new ResponseParser(this);
  #carrier: Carrier | null = null;
  /** What came before anyone asked for it, or while the whole is being collected. */
  #pieces: Buffer[] = [];
  #waitingBytes = 0;
  /** The body at its declared length, filled as it comes. */
  #room: Buffer | null = null;
  #reader: PieceReader | null = null;
  /** Will be the reader once it wants to begin. */
  #piped: PieceReader | null = null;
  #taker: Taker | null = null;
  #failure: unknown = null;
  #isPaused = false;
  /** Nobody wants the rest. */
  #discards = false;
  #settled = false;
  #resolve!: (answer: Answer | Promise<never>) => void;
  #reject!: (error: unknown) => void;
  /** Resolves with a 2xx answer once its head is there, or rejects with a BackendError. */
  readonly answered = new Promise<Answer>((resolve, reject) => {
    this.#resolve = resolve;
    this.#reject = reject;
  });
  /** Something of the answer has arrived. */
  hasBegun = false;

  constructor(
    /** Of the request, in Latin-1. */
    readonly head: string,
    readonly body: Uint8Array,
    readonly errorOf: OriginOptions["errorOf"],
  ) {}

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
  /** It has come to its end, good or bad. */
  get isOver(): boolean {
    return this.#settled;
  }

  /** From now on the exchange runs on this connection. */
  carriedBy(carrier: Carrier): void {
    this.#carrier = carrier;
  }

  /** Bytes from the connection. */
  received(bytes: Buffer): void {
    this.hasBegun = true;
    try {
      this.#parser.feed(bytes);
    } catch (error) {
      this.failed(new BackendError("transport", (error as Error).message));
      return;
    }
    this.#reader?.flush();
    if (this.#parser.isDone) this.#over(this.#parser.isReusable);
  }

  /** The connection is closed. */
  disconnected(error: Error | null): void {
    if (this.#settled) return;
    if (!error && this.#parser.closed()) {
      this.#over(false);
      return;
    }
    const how = error ? error.message : "it closed the connection";
    const when = this.hasBegun ? "the upstream broke off its answer" : "the upstream did not answer";
    this.failed(new BackendError("transport", `${when}: ${how}`));
  }

  /** Ends it for good; whoever waits hears of it. */
  failed(error: unknown): void {
    if (this.#settled) return;
    this.#failure = error;
    this.#over(false);
    this.#reject(error);
    this.#taker?.reject(error);
    this.#taker = null;
    this.#reader?.failed(error);
    this.#reader = null;
  }

  #over(isReusable: boolean): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#carrier?.done(isReusable);
    this.#carrier = null;
  }

  // What the parser finds.

  headed(head: ResponseHead): void {
    this.#answerHead = head;
    headRead();
    if (head.status >= 200 && head.status < 300) this.#resolve(this);
    else this.#resolve(this.errorOf(this).then((error) => Promise.reject(error)));
  }

  piece(bytes: Buffer): void {
    if (this.#reader) this.#reader.piece(bytes);
    else if (this.#discards) return;
    else if (this.#room) this.#waitingBytes += bytes.copy(this.#room, this.#waitingBytes);
    else {
      this.#pieces.push(bytes);
      this.#waitingBytes += bytes.length;
      if (!this.#taker) {
        if (this.#waitingBytes > UNREAD_BYTES_MAX) this.#carrier?.pause();
      } else if (this.#waitingBytes > this.#taker.bytesMax) this.failed(tooLarge(this.#taker.bytesMax));
    }
  }

  end(): void {
    this.#reader?.end();
    this.#reader = null;
    this.#taker?.resolve(this.#collected());
    this.#taker = null;
  }

  // What the caller asks for.

  bytes(bytesMax: number): Buffer | Promise<Buffer> {
    if (this.#failure) return Promise.reject(this.#failure);
    const { contentLength } = this.#answerHead!;
    if (this.#waitingBytes > bytesMax || (contentLength ?? 0) > bytesMax) {
      const error = tooLarge(bytesMax);
      this.failed(error);
      return Promise.reject(error);
    }
    if (this.#parser.isDone) return this.#collected();
    if (contentLength !== null && contentLength <= RESERVED_BYTES_MAX) this.#reserve(contentLength);
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    this.#taker = { bytesMax, resolve, reject };
    this.#carrier?.resume();
    return promise;
  }

  #reserve(length: number): void {
    const room = Buffer.allocUnsafeSlow(length);
    let at = 0;
    for (const piece of this.#pieces) at += piece.copy(room, at);
    this.#pieces = [];
    this.#room = room;
  }

  #collected(): Buffer {
    if (this.#room) return this.#room;
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
    // What it was just handed may have been enough for it.
    if (!this.#isPaused) this.#carrier?.resume();
  }

  /** Hands over what has come so far. */
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
    if (this.#parser.isDone) this.end();
  }

  leave(): void {
    this.#reader = null;
    this.#discards = true;
    this.#carrier?.linger();
  }
  cancel(): void {
    this.#reader = null;
    this.#discards = true;
    this.#over(false);
  }
}
