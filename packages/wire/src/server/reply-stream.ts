import type { ReplySource, ReplyWriter } from "../http/reply.ts";
import type { Outbox } from "../turns/outbox.ts";

const NOTHING = Buffer.alloc(0);

/** What a streamed reply needs of its connection. */
export interface StreamCarrier {
  /** The client is not reading. */
  streamBlocked(): void;
  streamEnded(): void;
  /** The source cut the reply off. */
  streamBroken(): void;
}

export interface ReplyStreamOptions {
  source: ReplySource;
  /** Sent before the first piece. */
  head: string;
  /** Otherwise the end of the connection marks the end of the reply. */
  isChunked: boolean;
  outbox: Outbox;
  carrier: StreamCarrier;
}

/**
 * One streamed reply. A separate object per reply, so that a source that keeps writing after its end cannot write
 * into the reply to the next request, which may be another user's.
 */
export class ReplyStream implements ReplyWriter {
  readonly #source: ReplySource;
  readonly #isChunked: boolean;
  readonly #outbox: Outbox;
  readonly #carrier: StreamCarrier;
  #head: string;
  #isOver = false;

  constructor({ source, head, isChunked, outbox, carrier }: ReplyStreamOptions) {
    this.#source = source;
    this.#head = head;
    this.#isChunked = isChunked;
    this.#outbox = outbox;
    this.#carrier = carrier;
  }

  begin(): void {
    this.#source.begin(this);
    // The client gets the head even when the source has nothing to write yet.
    if (this.#head !== "" && !this.#isOver) this.#put(NOTHING, false);
  }

  write(piece: Uint8Array | string): boolean {
    if (this.#isOver) return true;
    if (piece.length > 0) this.#put(piece, false);
    if (this.#outbox.waitingBytes === 0) return true;
    this.#carrier.streamBlocked();
    return false;
  }

  end(last: Uint8Array = NOTHING): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#put(last, true);
    this.#carrier.streamEnded();
  }

  terminate(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#carrier.streamBroken();
  }

  drained(): void {
    this.#source.drained();
  }

  /** The client has disconnected. */
  left(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#source.left();
  }

  #put(piece: Uint8Array | string, isLast: boolean): void {
    const head = this.#head;
    this.#head = "";
    if (this.#isChunked) this.#outbox.sendChunk(head, piece, isLast);
    else this.#outbox.sendMessage(head, piece);
  }
}
