import type { Socket } from "bun";
import type { Clock } from "../clock.ts";
import { Reply, type ReplyHead, StreamedReply } from "../http/reply.ts";
import { BadRequest } from "../http/request.ts";
import type { WireLog } from "../log.ts";
import { partOf } from "../pieces.ts";
import { headRead } from "../turns/collector.ts";
import type { Recipient } from "../turns/inbox.ts";
import type { Drainable } from "../turns/outbox.ts";
import { type BytePipe, ServerSocket } from "../websocket/server-socket.ts";
import { ClientSocket } from "./client-socket.ts";
import { IncomingRequest, type RequestCarrier } from "./incoming-request.ts";
import {
  DISCARDED_BYTES_MAX,
  HEAD_MS,
  IDLE_MS,
  IDLE_RETIRING_MS,
  STREAK_MAX,
  UNREAD_MS,
  WAITING_BYTES_MAX,
} from "./limits.ts";
import { CONTINUE, headText, sendWhole, TEXT_TYPE } from "./reply-head.ts";
import { ReplyStream, type StreamCarrier } from "./reply-stream.ts";
import { RequestBody } from "./request-body.ts";
import { checkBeginning, HEAD_BYTES_MAX, RequestHead } from "./request-head.ts";
import { type SocketReply, upgradeHead } from "./upgrade.ts";

const HEAD_END = Buffer.from("\r\n\r\n");
const NOTHING = Buffer.alloc(0);
const LATE = new BadRequest(408, "the request did not come in time");

// biome-ignore lint/suspicious/noExplicitAny: only the handlers know the type of their sockets' data
export type AnyReply = Reply | StreamedReply | SocketReply<any>;

export interface ConnectionOptions {
  /** Should answer its own failures. What it throws is logged and answered with 500, or the status of a BadRequest. */
  handle(request: IncomingRequest): AnyReply | Promise<AnyReply>;
  newRequestId(): string;
  log: WireLog;
  clock: Clock;
  /** The server is shutting down: every reply closes its connection. */
  readonly isRetiring: boolean;
  messageBytesMax: number;
  bufferBytesMax: number;
  gone(connection: Connection): void;
  /** A handler knows who the connection's client is. */
  vouched(connection: Connection): void;
}

/** One client's connection: its requests, one after the other, or the WebSocket it was upgraded to. */
export class Connection implements Recipient, RequestCarrier, StreamCarrier, BytePipe {
  readonly #client: ClientSocket;
  /** Bytes that have not been parsed yet. */
  #held: Buffer | null = null;
  /** How many of them are the beginning of a head that has been looked at. */
  #checkedBytes = 0;
  #request: IncomingRequest | null = null;
  /** The current request's body while some of it is still to come. */
  #body: RequestBody | null = null;
  #stream: ReplyStream | null = null;
  #webSocket: ServerSocket<unknown> | null = null;
  /** Frees the memory of the reply that is being sent. */
  #release: (() => void) | null = null;
  #keepsAlive = true;
  #isAdvancing = false;
  #streak = 0;
  #isVouchedFor = false;
  /** When the last request was done, or the connection opened. */
  #idleSinceMs: number;

  constructor(
    socket: Socket<Drainable>,
    readonly options: ConnectionOptions,
  ) {
    this.#client = new ClientSocket(socket, options.clock);
    this.#idleSinceMs = options.clock.now();
    this.#client.expectBy(this.#idleSinceMs + HEAD_MS);
  }

  get remoteAddress(): string {
    return this.#client.remoteAddress;
  }

  /** A request is being handled and its reply has not begun. */
  get isAnswering(): boolean {
    return this.#request !== null && this.#stream === null && this.#body === null;
  }

  vouched(): void {
    if (this.#isVouchedFor) return;
    this.#isVouchedFor = true;
    this.options.vouched(this);
  }

  // Events of the socket.

  received(bytes: Buffer): void {
    if (this.#webSocket) this.#webSocket.received(bytes);
    else if (!this.#client.isUsable) return;
    else if (this.#body) this.#readBody(this.#body, bytes);
    else {
      const isBeginning = this.#held === null;
      this.#held = this.#held ? Buffer.concat([this.#held, bytes]) : bytes;
      if (this.#request === null && !this.#isAdvancing && this.#client.isTaken) {
        this.#streak = 0;
        this.#advance();
        if (isBeginning && this.#held !== null && this.#request === null) this.#client.expectWithin(HEAD_MS);
      } else if (this.#held.length > WAITING_BYTES_MAX) this.#client.pause();
    }
  }

  drained(): void {
    // The runtime also calls this when reading is paused or resumed.
    if (this.#client.isTaken || this.#client.isClosed) return;
    if (!this.#client.drained()) return;
    this.#released();
    if (this.#client.isLingering) this.#client.shutDown();
    else if (this.#webSocket) this.#webSocket.drained();
    else if (this.#stream) {
      this.#client.expectNothing();
      this.#stream.drained();
    } else if (this.#request === null && this.#body === null) this.#next();
  }

  disconnected(): void {
    if (this.#client.isClosed) return;
    this.#client.isClosed = true;
    this.#client.expectNothing();
    this.#held = null;
    this.#released();
    this.options.gone(this);
    const stream = this.#stream;
    const request = this.#request;
    this.#stream = null;
    this.#request = null;
    this.#webSocket?.disconnected();
    stream?.left();
    request?.gone();
  }

  /** Closes the connection if the client's time is up. */
  check(nowMs: number): void {
    if (!this.#client.isOverdue(nowMs)) return;
    if (!this.#client.isTaken || this.#client.isLingering) this.terminate();
    else if (this.#body && this.#request) this.#refuseBody(this.#body, LATE);
    else if (this.#held) this.#refuse(LATE);
    else this.#leave();
  }

  /** Closes the connection once it has been idle for a moment. */
  retire(): void {
    if (this.#webSocket) this.#webSocket.retire();
    else if (this.#isIdle) this.#leaveAt(this.#idleSinceMs + IDLE_RETIRING_MS);
  }

  #leaveAt(deadlineMs: number): void {
    if (this.options.clock.now() >= deadlineMs) this.#leave();
    else this.#client.expectBy(deadlineMs);
  }

  /** Closes the connection if it has been idle since then. */
  closeIfIdleSince(sinceMs: number): void {
    if (this.#isIdle && this.#idleSinceMs <= sinceMs) this.#leave();
  }

  get #isIdle(): boolean {
    const isAnswered = this.#request === null && this.#client.isTaken;
    return isAnswered && this.#held === null && this.#webSocket === null;
  }

  /** Closes an idle connection. */
  #leave(): void {
    this.#client.end();
    this.disconnected();
  }

  // Requests.

  /** Reads requests while there are complete heads and none is being answered. */
  #advance(): void {
    if (this.#isAdvancing) return;
    this.#isAdvancing = true;
    try {
      while (this.#held && this.#isReady) {
        if (++this.#streak > STREAK_MAX) {
          this.#yield();
          return;
        }
        if (!this.#readHead(this.#held)) break;
      }
    } catch (error) {
      this.#refuse(error);
    }
    this.#isAdvancing = false;
  }

  /** The last reply is sent and the connection stays open. */
  get #isReady(): boolean {
    return this.#request === null && this.#client.isTaken && this.#client.isUsable;
  }

  /** Continues after the other connections have had their turn. */
  #yield(): void {
    setImmediate(() => {
      this.#isAdvancing = false;
      this.#streak = 0;
      if (this.#isReady) this.#next();
    });
  }

  /** False when the head is incomplete. */
  #readHead(held: Buffer): boolean {
    let from = 0;
    // Some clients send an extra line break after a body (RFC 9112 section 2.2).
    while (held[from] === 13 && held[from + 1] === 10) from += 2;
    const end = held.indexOf(HEAD_END, Math.max(from, this.#checkedBytes - HEAD_END.length + 1));
    if (end === -1 || end - from > HEAD_BYTES_MAX) {
      this.#held = from === held.length ? null : held.subarray(from);
      if (this.#held) checkBeginning(this.#held, Math.max(0, this.#checkedBytes - from));
      this.#checkedBytes = this.#held?.length ?? 0;
      return false;
    }
    this.#checkedBytes = 0;
    const head = new RequestHead(held.toString("latin1", from, end + 2));
    headRead();
    this.#held = null;
    this.#keepsAlive = head.keepsAlive;
    this.#client.expectNothing();
    const request = new IncomingRequest(head, this.#contentOf(head, held, end + HEAD_END.length), this);
    this.#request = request;
    const answer = this.options.handle(request);
    if (answer instanceof Promise) {
      answer.then(
        (later) => this.#answer(request, later),
        (error) => this.#failed(request, error),
      );
    } else this.#answer(request, answer);
    return true;
  }

  /** The body if it has arrived already, or its collector. */
  #contentOf(head: RequestHead, bytes: Buffer, from: number): Buffer | RequestBody {
    const length = head.contentLength ?? 0;
    if (!head.isChunked && bytes.length - from >= length) {
      this.#hold(bytes, from + length);
      return length === 0 ? NOTHING : partOf(bytes, from, from + length);
    }
    const body = new RequestBody(head.contentLength);
    const to = from + body.feed(bytes.subarray(from));
    if (body.isDone) this.#hold(bytes, to);
    else {
      this.#body = body;
      this.#bodyGrew(body);
    }
    return body;
  }

  /** The bytes after a request belong to the next one. */
  #hold(bytes: Buffer, from: number): void {
    if (from < bytes.length) this.#held = bytes.subarray(from);
  }

  #readBody(body: RequestBody, bytes: Buffer): void {
    try {
      this.#hold(bytes, body.feed(bytes));
    } catch (error) {
      this.#refuseBody(body, error);
      return;
    }
    if (!body.isDone) this.#bodyGrew(body);
    else {
      this.#body = null;
      this.#client.expectNothing();
      if (this.#request === null) this.#next();
    }
  }

  #bodyGrew(body: RequestBody): void {
    if (this.#request === null && body.discardedBytes > DISCARDED_BYTES_MAX) this.#close();
    else if (body.isAwaited) this.#awaitBody(body);
    else if (body.waitingBytes > WAITING_BYTES_MAX) this.#client.pause();
  }

  /** While a reply is streamed, the deadline is for reading it, not for sending the body. */
  #awaitBody(body: RequestBody): void {
    this.#client.resume();
    if (this.#stream === null) this.#client.expectBy(body.dueMs(this.options.clock.now()));
  }

  bodyAwaited(expectsContinue: boolean): void {
    if (expectsContinue) this.#client.outbox.send(CONTINUE);
    if (this.#body) this.#awaitBody(this.#body);
  }

  /** The rest of the body cannot be read. */
  #refuseBody(body: RequestBody, error: unknown): void {
    body.failed(error instanceof Error ? error.message : String(error));
    // The request has been answered: another reply would be taken for the answer to the next one.
    if (this.#request === null) this.#close();
    else this.#refuse(error);
  }

  /** Answers a request that cannot be read, and closes the connection. */
  #refuse(error: unknown): void {
    const isBad = error instanceof BadRequest;
    if (!isBad) this.options.log.error("a request failed outside of its handler", { error });
    // Cut the streamed reply off: a second reply in the middle of it would be worse.
    if (this.#stream) {
      this.terminate();
      return;
    }
    const status = isBad ? error.status : 500;
    const text = isBad ? `${error.message}\n` : "Internal error\n";
    const request = this.#request;
    this.#keepsAlive = false;
    this.#writeWhole({ status, contentType: TEXT_TYPE, requestId: this.options.newRequestId() }, text, false);
    this.#finished();
    request?.gone();
  }

  #failed(request: IncomingRequest, error: unknown): void {
    if (this.#request === request) this.#refuse(error);
    else this.options.log.error("a request failed after its client had left", { error });
  }

  // Replies.

  #answer(request: IncomingRequest, answer: AnyReply): void {
    // The client has left, or was told that its request was bad.
    if (this.#request !== request) {
      if (answer instanceof StreamedReply) answer.source.left();
      else if (answer instanceof Reply) answer.release?.();
      return;
    }
    try {
      if (answer instanceof Reply) {
        this.#writeWhole(answer.head, answer.body, request.head.isHttp10);
        // Once everything is taken, nothing refers to the body any more.
        if (!this.#client.isTaken) this.#release = answer.release;
        else answer.release?.();
        this.#finished();
      } else if (answer instanceof StreamedReply) this.#beginStream(answer, request);
      else this.#upgrade(answer, request);
    } catch (error) {
      this.options.log.error("an answer could not be written", { error });
      this.terminate();
    }
  }

  #writeWhole(head: ReplyHead, body: Reply["body"], isHttp10: boolean): void {
    this.#decideKeeping(this.#isBodySoonOver);
    const isHeadOnly = this.#request?.method === "HEAD";
    sendWhole(this.#client.outbox, head, body, { keepsAlive: this.#keepsAlive, isHttp10, isHeadOnly });
  }

  /** The last reply's body is no longer in use. */
  #released(): void {
    this.#release?.();
    this.#release = null;
  }

  #decideKeeping(isPossible: boolean): void {
    if (!isPossible || this.options.isRetiring) this.#keepsAlive = false;
  }

  /** Whether the rest of an unread body is short enough to skip, so that the connection can be kept. */
  get #isBodySoonOver(): boolean {
    if (this.#body === null) return true;
    return this.#body.leftBytes <= DISCARDED_BYTES_MAX && this.#request?.head.expectsContinue === false;
  }

  #beginStream({ head, source }: StreamedReply, { method, head: { isHttp10 } }: IncomingRequest): void {
    this.#decideKeeping(!isHttp10 && this.#body === null);
    const framing = isHttp10 ? "until-close" : "chunked";
    const text = headText(head, { framing, keepsAlive: this.#keepsAlive, isHttp10 });
    if (method === "HEAD") {
      this.#client.outbox.sendMessage(text, "");
      this.#finished();
      source.left();
      return;
    }
    this.#client.expectNothing();
    const isChunked = !isHttp10;
    const stream = new ReplyStream({
      source,
      head: text,
      isChunked,
      outbox: this.#client.outbox,
      carrier: this,
    });
    this.#stream = stream;
    if (this.#body) this.#discard(this.#body);
    stream.begin();
  }

  streamBlocked(): void {
    if (!this.#client.isExpecting) this.#client.expectWithin(UNREAD_MS);
  }
  streamEnded(): void {
    this.#stream = null;
    this.#finished();
  }
  streamBroken(): void {
    this.#stream = null;
    this.#request = null;
    this.terminate();
  }

  /** The current reply is written, though the client may not have read it yet. */
  #finished(): void {
    this.#request = null;
    if (!this.#keepsAlive) this.#close();
    else if (this.#body) this.#discard(this.#body);
    else this.#next();
  }

  #discard(body: RequestBody): void {
    body.discard();
    this.#awaitBody(body);
  }

  /** Starts on the next request, or waits for it, once the last reply is sent. */
  #next(): void {
    if (!this.#client.isTaken) {
      this.#client.expectWithin(UNREAD_MS);
      return;
    }
    this.#client.resume();
    if (this.#held) {
      this.#client.expectWithin(HEAD_MS);
      this.#advance();
    } else {
      this.#idleSinceMs = this.options.clock.now();
      this.#client.expectBy(this.#idleSinceMs + (this.options.isRetiring ? IDLE_RETIRING_MS : IDLE_MS));
    }
  }

  #close(): void {
    if (!this.#client.isUsable) return;
    this.#held = null;
    this.#client.linger(this.#body !== null);
  }

  // WebSockets.

  #upgrade(answer: SocketReply, request: IncomingRequest): void {
    const head = upgradeHead(answer, request);
    if (head instanceof Reply) {
      this.#answer(request, head);
      return;
    }
    const { data, handlers, options } = answer;
    const { log, clock, bufferBytesMax } = this.options;
    this.#client.outbox.sendMessage(head, "");
    this.#request = null;
    const webSocket = new ServerSocket({
      pipe: this,
      data,
      handlers,
      clock,
      messageBytesMax: options.messageBytesMax ?? this.options.messageBytesMax,
      bufferBytesMax,
      onError: (error) => log.error("a WebSocket's handler failed", { error }),
    });
    this.#webSocket = webSocket;
    webSocket.opened();
    const held = this.#held;
    this.#held = null;
    this.#client.resume();
    if (held) webSocket.received(held);
    if (this.options.isRetiring) this.retire();
  }

  get bufferedBytes(): number {
    return this.#client.outbox.waitingBytes;
  }
  write(bytes: Uint8Array): void {
    this.#client.outbox.send(bytes);
  }
  end(): void {
    this.#close();
  }
  terminate(): void {
    this.#client.terminate();
    this.disconnected();
  }

  broke(error: unknown): void {
    // Its state can no longer be trusted.
    this.options.log.error("a connection failed", { error });
    this.terminate();
  }
}
