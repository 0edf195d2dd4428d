import type { Socket } from "bun";
import type { Clock } from "../clock.ts";
import { arrived, departed, type Recipient } from "../turns/inbox.ts";
import { Outbox } from "../turns/outbox.ts";
import { type Abort, ANSWER_LINGER_MS, type Answer, type Origin, type OriginOptions } from "./answer.ts";
import { Exchange } from "./exchange.ts";
import type { Carrier } from "./incoming-answer.ts";

/** Shorter than the five seconds after which common servers close an idle connection. */
const IDLE_MS = 4_000;
const IDLE_MAX = 512;
const CONNECT_MS = 10_000;
const KEEP_ALIVE_MS = 30_000;
/**
 * A close that crossed the request on its way arrives within a round trip, even to another continent. One that comes
 * later is from a server that has had the request, and may have begun to work on it.
 */
const CROSSED_MS_MAX = 250;
const NOTHING = new Uint8Array(0);

/**
 * HTTP/1.1 to one plain-http server over kept connections: the part of HTTP that a GET, POST or DELETE needs, on the event loop's
 * own sockets. The runtime's `fetch` runs on another thread and wraps everything in web streams, which can cost more
 * than the work itself (docs/decisions/012).
 */
export class HttpOrigin implements Origin {
  readonly #hostname: string;
  readonly #port: number;
  readonly #fixedHead: string;
  readonly #clock: Clock;
  readonly #errors: Pick<OriginOptions, "failure" | "errorOf">;
  readonly #idle: Connection[] = [];
  #cancelSweep: (() => void) | null = null;
  #closed = false;

  constructor(options: OriginOptions, clock: Clock) {
    this.#errors = options;
    const { hostname, port, host } = new URL(options.url);
    // Sockets take an IPv6 address without the brackets of a URL.
    this.#hostname = hostname.replace(/^\[(.*)\]$/, "$1");
    this.#port = Number(port || 80);
    this.#clock = clock;
    this.#fixedHead = ` HTTP/1.1\r\nhost: ${host}\r\n${this.#lines(options.headers)}`;
  }

  #lines(headers: Readonly<Record<string, string>>): string {
    let lines = "";
    for (const [name, value] of Object.entries(headers)) {
      // A line break would start another header.
      if (/[\r\n\0]/.test(value))
        throw this.#errors.failure("request", `the header ${name} has a line break in it`);
      lines += `${name}: ${value}\r\n`;
    }
    return lines;
  }

  post(
    path: string,
    body: Uint8Array | string,
    abort: Abort,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> {
    const bytes = typeof body === "string" ? Buffer.from(body) : body;
    return this.#send(
      `POST ${path}`,
      bytes,
      abort,
      `${this.#lines(headers)}content-length: ${bytes.length}\r\n`,
    );
  }

  get(
    path: string,
    abort: Abort,
    headers: Readonly<Record<string, string>> = {},
    method: "GET" | "DELETE" = "GET",
  ): Promise<Answer> {
    return this.#send(`${method} ${path}`, NOTHING, abort, this.#lines(headers));
  }

  #send(line: string, bytes: Uint8Array, abort: Abort, lines: string): Promise<Answer> {
    const exchange = new Exchange(`${line}${this.#fixedHead}${lines}\r\n`, bytes, this.#errors);
    abort.whenAborted((reason) => {
      if (exchange.isUnsent) abort.unsent?.();
      exchange.failed(reason);
    });
    if (!exchange.isOver) {
      const kept = this.#take();
      if (kept) kept.carry(exchange);
      else this.#carryOnNew(exchange);
    }
    return exchange.answered;
  }

  #carryOnNew(exchange: Exchange): void {
    const connection = new Connection({
      clock: this.#clock,
      idle: (kept) => this.#keep(kept),
      gone: (lost) => this.#forget(lost),
      again: (unanswered) => this.#carryOnNew(unanswered),
    });
    const fail = (error: unknown) => {
      const message = `cannot connect to the upstream: ${(error as Error).message}`;
      exchange.failed(this.#errors.failure("connect", message));
    };
    const giveUp = this.#clock.after(CONNECT_MS, () => {
      fail(new Error(`no connection within ${CONNECT_MS} ms`));
    });
    Bun.connect({ hostname: this.#hostname, port: this.#port, data: connection, socket: HANDLERS })
      .then(() => (exchange.isOver ? connection.free() : connection.carry(exchange)), fail)
      .finally(giveUp);
  }

  #take(): Connection | null {
    const oldestMs = this.#clock.elapsed() - IDLE_MS;
    for (;;) {
      const connection = this.#idle.pop();
      if (!connection) return null;
      if (connection.idleSinceMs > oldestMs) return connection;
      connection.destroy();
    }
  }

  #keep(connection: Connection): void {
    if (this.#closed || this.#idle.length >= IDLE_MAX) {
      connection.destroy();
      return;
    }
    this.#idle.push(connection);
    this.#cancelSweep ??= this.#clock.after(IDLE_MS, () => this.#sweep());
  }

  #forget(connection: Connection): void {
    const at = this.#idle.indexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  /** The oldest come first. */
  #sweep(): void {
    this.#cancelSweep = null;
    const oldestMs = this.#clock.elapsed() - IDLE_MS;
    const firstYoung = this.#idle.findIndex(({ idleSinceMs }) => idleSinceMs > oldestMs);
    for (const old of this.#idle.splice(0, firstYoung === -1 ? this.#idle.length : firstYoung)) old.destroy();
    if (this.#idle.length > 0) this.#cancelSweep = this.#clock.after(IDLE_MS, () => this.#sweep());
  }

  /** Closes idle connections; answers in progress run to their end. */
  close(): void {
    this.#closed = true;
    this.#cancelSweep?.();
    for (const connection of this.#idle.splice(0)) connection.destroy();
  }
}

interface ConnectionOptions {
  clock: Clock;
  idle: (connection: Connection) => void;
  gone: (connection: Connection) => void;
  /** The server closed a kept connection just as it was reused: the request is repeated on a new one. */
  again: (exchange: Exchange) => void;
}

class Connection implements Carrier, Recipient {
  idleSinceMs = 0;
  #socket: Socket<Connection> | null = null;
  #exchange: Exchange | null = null;
  #outbox: Outbox | null = null;
  #carried = 0;
  #sentMs = 0;
  #isPaused = false;
  #cancelLinger: (() => void) | null = null;

  constructor(readonly options: ConnectionOptions) {}

  opened(socket: Socket<Connection>): void {
    this.#socket = socket;
    this.#outbox = new Outbox(socket);
    socket.setNoDelay(true);
    // An answer may take minutes to begin; routers on the way must not forget the connection meanwhile.
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
  }

  carry(exchange: Exchange): void {
    this.#carried++;
    this.#sentMs = this.options.clock.elapsed();
    this.#exchange = exchange;
    exchange.carriedBy(this);
    // It may have been closed since it was opened or kept.
    if (this.#outbox) {
      this.#outbox.hasSent = false;
      this.#outbox.sendMessage(exchange.head, exchange.body);
    } else this.disconnected(null);
  }

  get hasSent(): boolean {
    return this.#outbox?.hasSent ?? true;
  }

  drained(): void {
    this.#outbox?.drained();
  }

  received(bytes: Buffer): void {
    // Bytes that answer no request: the connection cannot be trusted with one.
    if (this.#exchange) this.#exchange.received(bytes);
    else this.destroy();
  }

  disconnected(error: Error | null): void {
    this.#socket = null;
    this.#outbox = null;
    this.#cancelLinger?.();
    const exchange = this.#exchange;
    if (!exchange) {
      this.options.gone(this);
      return;
    }
    this.#exchange = null;
    if (this.#hasCrossed(exchange)) this.options.again(exchange);
    else exchange.disconnected(error);
  }

  /** Whether the server closed the kept connection before it could see that it was used again. */
  #hasCrossed({ hasBegun }: Exchange): boolean {
    return this.#carried > 1 && !hasBegun && this.options.clock.elapsed() - this.#sentMs <= CROSSED_MS_MAX;
  }

  pause(): void {
    if (this.#isPaused) return;
    this.#isPaused = true;
    this.#socket?.pause();
  }
  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#socket?.resume();
  }
  linger(): void {
    this.resume();
    this.#cancelLinger ??= this.options.clock.after(ANSWER_LINGER_MS, () => this.destroy());
  }

  done(isReusable: boolean): void {
    this.#exchange = null;
    this.#cancelLinger?.();
    this.#cancelLinger = null;
    // The server answered before the whole request was sent; the rest of it is in the way.
    if (!isReusable || (this.#outbox?.waitingBytes ?? 0) > 0) {
      this.destroy();
      return;
    }
    this.resume();
    this.free();
  }

  free(): void {
    this.idleSinceMs = this.options.clock.elapsed();
    this.options.idle(this);
  }

  destroy(): void {
    this.#socket?.terminate();
    this.#socket = null;
    this.#outbox = null;
  }

  broke(error: unknown): void {
    this.#exchange?.broke(error);
    this.destroy();
  }
}

const HANDLERS = {
  open: (socket: Socket<Connection>) => socket.data.opened(socket),
  data: (socket: Socket<Connection>, bytes: Buffer) => arrived(socket.data, bytes),
  drain: (socket: Socket<Connection>) => socket.data.drained(),
  close: (socket: Socket<Connection>, error?: Error) => departed(socket.data, error ?? null),
  error: (socket: Socket<Connection>, error: Error) => departed(socket.data, error),
};
