import type { ReplySource, ReplyWriter } from "../../kernel/reply.ts";
import type { Outbox } from "../../kernel/sockets/outbox.ts";

const NOTHING = Buffer.alloc(0);

/** What a streamed answer needs of its connection. */
export interface StreamCarrier {
  /** The client does not take what is written. */
  streamBlocked(): void;
  streamEnded(): void;
  /** Its source breaks it off. */
  streamBroken(): void;
}

export interface ReplyStreamOptions {
  source: ReplySource;
  /** What goes before the first piece. */
  head: string;
  /** Otherwise the end of the connection is the end of the answer. */
  isChunked: boolean;
  outbox: Outbox;
  carrier: StreamCarrier;
}

/**
 * One streamed answer on its way. An object of its own, so that a source that goes on after its end cannot write
 * into the answer to the next request, which may be another user's.
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
    // A source that has nothing to say yet does not keep the client from the head.
    if (this.#head !== "" && !this.#isOver) this.#put(NOTHING, false);
  }

  write(piece: Uint8Array | string): boolean {
    if (this.#isOver) return true;
    const bytes = typeof piece === "string" ? Buffer.from(piece) : piece;
    if (bytes.length > 0) this.#put(bytes, false);
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

  /** The client is gone. */
  left(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#source.left();
  }

  #put(piece: Uint8Array, isLast: boolean): void {
    const head = this.#head;
    this.#head = "";
    if (this.#isChunked) this.#outbox.sendChunk(head, piece, isLast);
    else this.#outbox.sendMessage(head, piece);
  }
}
