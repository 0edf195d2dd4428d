import type { Socket } from "bun";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import {
  Reply,
  type ReplyHead,
  type ReplySource,
  type ReplyWriter,
  StreamedReply,
} from "../../kernel/reply.ts";
import { IncomingRequest, type RequestCarrier } from "./incoming.ts";
import { Outbox } from "./outbox.ts";
import { RequestBody } from "./request-body.ts";
import { BadRequest, HEAD_BYTES_MAX, RequestHead } from "./request-head.ts";
import { type BytePipe, ServerSocket, type SocketHandlers } from "./websocket.ts";
import { webSocketHandshake } from "./websocket-handshake.ts";
import { CONTINUE, type Framing, headText } from "./wire.ts";

/** How long a client may take for the head of a request, and be silent within its body. */
const HEAD_MS = 30_000;
const BODY_SILENCE_MS = 60_000;
/** How long a connection without a request is kept: longer than the proxies in front of us keep theirs. */
const IDLE_MS = 120_000;
/** How long a client may take nothing of an answer that is all there. */
const UNREAD_MS = 120_000;
/** How long a client may still send what nobody reads, so that it gets to read why. */
const LINGER_MS = 2_000;
/** What is read on for the sake of the next request, when nobody wanted the body of this one. */
const DISCARDED_BYTES_MAX = 256 * 1024;
/** Requests that come while one is being answered wait here. */
const PIPELINED_BYTES_MAX = 64 * 1024;
const HEAD_END = Buffer.from("\r\n\r\n");
const NOTHING = Buffer.alloc(0);
const TEXT_TYPE = "text/plain; charset=utf-8";

/** An answer that turns the connection into a WebSocket. */
export class SocketReply<Data = unknown> {
  constructor(
    readonly requestId: string,
    readonly data: Data,
    readonly handlers: SocketHandlers<Data>,
    /** What a request that asks for no WebSocket is told. */
    readonly hint = "This address is for WebSockets",
  ) {}
}

// biome-ignore lint/suspicious/noExplicitAny: whoever made it knows the data of its sockets
export type HttpAnswer = Reply | StreamedReply | SocketReply<any>;

export interface ConnectionOptions {
  /** Must not throw or reject. */
  handle(request: IncomingRequest): HttpAnswer | Promise<HttpAnswer>;
  newRequestId(): string;
  log: Log;
  clock: Clock;
  /** Every answer ends its connection. */
  readonly isRetiring: boolean;
  messageBytesMax: number;
  bufferBytesMax: number;
  gone(connection: Connection): void;
}

/** One client's connection: its requests one after the other, or the WebSocket that it became. */
export class Connection implements RequestCarrier, ReplyWriter, BytePipe {
  readonly #outbox: Outbox;
  /** Bytes that have not been looked at yet. */
  #held: Buffer | null = null;
  #request: IncomingRequest | null = null;
  /** The rest of the current request's body is still to come. */
  #body: RequestBody | null = null;
  #source: ReplySource | null = null;
  #webSocket: ServerSocket<unknown> | null = null;
  /** What goes before the first piece of a streamed answer. */
  #streamHead = "";
  #framing: Framing = "length";
  #keepsAlive = true;
  #isAdvancing = false;
  #isPaused = false;
  /** The last answer is written; what still comes is thrown away. */
  #isLingering = false;
  #isClosed = false;
  /** When the client has kept us waiting for too long; 0: it does not. */
  #deadlineMs: number;

  constructor(
    readonly socket: Socket<Connection>,
    readonly options: ConnectionOptions,
  ) {
    this.#outbox = new Outbox(socket);
    this.#deadlineMs = options.clock.now() + HEAD_MS;
  }

  get remoteAddress(): string {
    return this.socket.remoteAddress;
  }
  /** Nothing is asked and nothing is being answered. */
  get isIdle(): boolean {
    return this.#request === null && this.#webSocket === null && this.#outbox.waitingBytes === 0;
  }

  // What the socket says.

  received(bytes: Buffer): void {
    if (this.#webSocket) this.#webSocket.received(bytes);
    else if (this.#isLingering || this.#isClosed) return;
    else if (this.#body) this.#readBody(this.#body, bytes);
    else {
      this.#held = this.#held ? Buffer.concat([this.#held, bytes]) : bytes;
      if (this.#request === null) this.#advance();
      else if (this.#held.length > PIPELINED_BYTES_MAX) this.pause();
    }
  }

  drained(): void {
    const before = this.#outbox.waitingBytes;
    this.#outbox.flush();
    const { waitingBytes } = this.#outbox;
    if (waitingBytes > 0) {
      if (waitingBytes < before && this.#deadlineMs > 0) this.#expectWithin(UNREAD_MS);
      return;
    }
    if (this.#webSocket) this.#webSocket.drained();
    else if (this.#source) this.#source.drained();
    else if (this.#isLingering) this.socket.shutdown();
    else if (this.#request === null) this.#expectWithin(IDLE_MS);
  }

  closed(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#deadlineMs = 0;
    this.#held = null;
    this.options.gone(this);
    const source = this.#source;
    this.#source = null;
    this.#webSocket?.disconnected();
    source?.left();
    this.#request?.gone();
    this.#request = null;
  }

  /** Ends the connection if its client has kept us waiting for too long. */
  check(nowMs: number): void {
    if (this.#deadlineMs === 0 || nowMs < this.#deadlineMs) return;
    const isAsking = this.#request === null && this.#held !== null && this.#outbox.waitingBytes === 0;
    if (isAsking && !this.#isLingering) this.#refuse(new BadRequest(408, "the request did not come in time"));
    else this.terminate();
  }

  /** Ends it once nothing is under way on it. */
  retire(): void {
    if (this.isIdle && this.#held === null) {
      this.socket.end();
      this.closed();
    } else this.#webSocket?.close(1001, "the service is stopping");
  }

  // Requests.

  #expectWithin(ms: number): void {
    this.#deadlineMs = ms === 0 ? 0 : this.options.clock.now() + ms;
  }

  /** Reads requests as long as whole heads are there and none is being answered. */
  #advance(): void {
    if (this.#isAdvancing) return;
    this.#isAdvancing = true;
    try {
      while (this.#held && this.#request === null && !this.#isLingering && !this.#isClosed) {
        if (!this.#readHead(this.#held)) break;
      }
    } catch (error) {
      this.#refuse(error);
    }
    this.#isAdvancing = false;
  }

  /** False when the head is not all there. */
  #readHead(bytes: Buffer): boolean {
    let from = 0;
    // An empty line before a request is somebody's idea of ending the one before.
    while (bytes[from] === 13 || bytes[from] === 10) from++;
    const end = bytes.indexOf(HEAD_END, from);
    if (end === -1 || end - from > HEAD_BYTES_MAX) {
      if (bytes.length - from > HEAD_BYTES_MAX) throw new BadRequest(431, "the headers are too large");
      return false;
    }
    const head = new RequestHead(bytes.toString("latin1", from, end + 2));
    this.#held = null;
    this.#keepsAlive = head.keepsAlive && !this.options.isRetiring;
    this.#deadlineMs = 0;
    const content = this.#contentOf(head, bytes, end + HEAD_END.length);
    const request = new IncomingRequest(head, content, this);
    this.#request = request;
    const answer = this.options.handle(request);
    if (answer instanceof Promise) void answer.then((later) => this.#answer(request, later));
    else this.#answer(request, answer);
    return true;
  }

  /** The body if it is here already, or who collects it. */
  #contentOf(head: RequestHead, bytes: Buffer, from: number): Buffer | RequestBody {
    if (!head.isChunked) {
      const length = head.contentLength ?? 0;
      if (bytes.length - from >= length) {
        if (bytes.length - from > length) this.#held = bytes.subarray(from + length);
        return length === 0 ? NOTHING : bytes.subarray(from, from + length);
      }
    }
    const body = new RequestBody(head.contentLength);
    this.#body = body;
    if (bytes.length > from) this.#readBody(body, bytes.subarray(from));
    if (this.#body) this.#expectWithin(BODY_SILENCE_MS);
    return body;
  }

  #readBody(body: RequestBody, bytes: Buffer): void {
    try {
      const taken = body.feed(bytes);
      if (taken < bytes.length) this.#held = bytes.subarray(taken);
    } catch (error) {
      body.failed(error);
      this.#body = null;
      this.#refuse(error);
      return;
    }
    // Nobody has asked for it yet: it may come once somebody does.
    if (!body.isDone) this.#expectWithin(BODY_SILENCE_MS);
    else {
      this.#body = null;
      this.#deadlineMs = 0;
      if (this.#request === null) this.#next();
    }
  }

  /** Says what is wrong with a request that cannot be read, and nothing more. */
  #refuse(error: unknown): void {
    const isBad = error instanceof BadRequest;
    if (!isBad) this.options.log.error("a request could not be read", { error });
    const status = isBad ? error.status : 500;
    const text = isBad ? `${error.message}\n` : "Internal error\n";
    const request = this.#request;
    this.#request = null;
    request?.gone();
    // What was being answered is cut off; a second answer into the middle of it would be worse.
    if (request && this.#source) {
      this.terminate();
      return;
    }
    this.#keepsAlive = false;
    this.#writeWhole({ status, contentType: TEXT_TYPE, requestId: this.options.newRequestId() }, text, false);
    this.#finished();
  }

  // Answers.

  #answer(request: IncomingRequest, answer: HttpAnswer): void {
    if (this.#isClosed || this.#request !== request) {
      if (answer instanceof StreamedReply) answer.source.left();
      return;
    }
    try {
      if (answer instanceof Reply) {
        this.#writeWhole(answer.head, answer.body, request.head.isHttp10);
        this.#finished();
      } else if (answer instanceof StreamedReply) this.#beginStream(answer, request);
      else this.#upgrade(answer, request);
    } catch (error) {
      this.options.log.error("an answer could not be written", { error });
      this.terminate();
    }
  }

  #writeWhole(head: ReplyHead, body: string | Uint8Array, isHttp10: boolean): void {
    const lengthBytes = typeof body === "string" ? Buffer.byteLength(body) : body.length;
    const isBodiless = head.status === 204 || head.status === 304;
    // A body that nobody has read is read on for the sake of the next request only if that is soon over.
    if (this.#body && !this.#isSoonOver(this.#body)) this.#keepsAlive = false;
    const framing = isBodiless ? "none" : "length";
    const text = headText(head, { framing, lengthBytes, keepsAlive: this.#keepsAlive, isHttp10 });
    const isHeadOnly = isBodiless || this.#request?.method === "HEAD";
    this.#outbox.sendMessage(text, isHeadOnly ? "" : body);
  }

  #isSoonOver(body: RequestBody): boolean {
    return body.leftBytes <= DISCARDED_BYTES_MAX && !this.#request!.head.expectsContinue;
  }

  #beginStream({ head, source }: StreamedReply, { method, head: { isHttp10 } }: IncomingRequest): void {
    this.#framing = isHttp10 ? "until-close" : "chunked";
    if (isHttp10 || this.#body) this.#keepsAlive = false;
    const { status, contentType, requestId, headers } = head;
    const text = headText(
      { status, contentType, requestId, headers },
      { framing: this.#framing, keepsAlive: this.#keepsAlive, isHttp10 },
    );
    if (method === "HEAD") {
      this.#outbox.sendMessage(text, "");
      this.#finished();
      source.left();
      return;
    }
    this.#streamHead = text;
    this.#source = source;
    source.begin(this);
    // A source that has nothing to say yet does not keep the client from the head.
    if (this.#streamHead !== "") this.#writePiece(NOTHING, false);
  }

  #writePiece(piece: Uint8Array, isLast: boolean): void {
    const before = this.#streamHead;
    this.#streamHead = "";
    if (this.#framing === "chunked") this.#outbox.sendChunk(before, piece, isLast);
    else this.#outbox.sendMessage(before, piece);
  }

  write(piece: Uint8Array | string): boolean {
    if (this.#webSocket) this.#outbox.send(piece as Uint8Array);
    else if (this.#source) {
      const bytes = typeof piece === "string" ? Buffer.from(piece) : piece;
      if (bytes.length > 0) this.#writePiece(bytes, false);
    }
    return this.#outbox.waitingBytes === 0;
  }

  end(last: Uint8Array = NOTHING): void {
    if (this.#webSocket) this.#close();
    else if (this.#source) {
      this.#source = null;
      this.#writePiece(last, true);
      this.#finished();
    }
  }

  /** The current answer is written, as far as it is up to us. */
  #finished(): void {
    this.#request = null;
    if (!this.#keepsAlive) this.#close();
    else if (this.#body) this.#body.discard();
    else this.#next();
  }

  #next(): void {
    this.resume();
    this.#expectWithin(this.#outbox.waitingBytes > 0 ? UNREAD_MS : this.#held ? HEAD_MS : IDLE_MS);
    if (this.#held) this.#advance();
  }

  /** Nothing more is answered: the client gets what is written, and then the end. */
  #close(): void {
    this.#isLingering = true;
    this.#held = null;
    // What it still sends must be read away, or its end of the connection breaks before it has read ours.
    this.resume();
    this.#expectWithin(this.#outbox.waitingBytes > 0 ? UNREAD_MS : LINGER_MS);
    if (this.#outbox.waitingBytes === 0) this.socket.shutdown();
  }

  sendContinue(): void {
    this.#outbox.send(CONTINUE);
  }

  // WebSockets.

  #upgrade({ requestId, data, handlers, hint }: SocketReply, request: IncomingRequest): void {
    const shaken = webSocketHandshake(request) ?? {
      accepted: false,
      status: 426,
      headers: { upgrade: "websocket" },
      text: `${hint}\n`,
    };
    if (!shaken.accepted) {
      const { status, text, headers } = shaken;
      const head = { status, contentType: TEXT_TYPE, requestId, headers };
      this.#writeWhole(head, text, request.head.isHttp10);
      this.#finished();
      return;
    }
    const { log, clock, messageBytesMax, bufferBytesMax } = this.options;
    this.#outbox.sendMessage(shaken.head, "");
    this.#request = null;
    const webSocket = new ServerSocket({
      pipe: this,
      data,
      handlers,
      clock,
      messageBytesMax,
      bufferBytesMax,
      onError: (error) => log.error("a WebSocket's handler failed", { error }),
    });
    this.#webSocket = webSocket;
    webSocket.opened();
    const held = this.#held;
    this.#held = null;
    if (held) webSocket.received(held);
  }

  get bufferedBytes(): number {
    return this.#outbox.waitingBytes;
  }

  pause(): void {
    if (this.#isPaused) return;
    this.#isPaused = true;
    this.socket.pause();
  }
  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.socket.resume();
  }

  terminate(): void {
    this.socket.terminate();
    this.closed();
  }
}
