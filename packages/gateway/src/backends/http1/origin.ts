import type { Socket } from "bun";
import type { Clock } from "../../kernel/clock.ts";
import { arrived, departed, type Recipient } from "../../kernel/sockets/inbox.ts";
import { Outbox } from "../../kernel/sockets/outbox.ts";
import { type Answer, BackendError, type ModelCall, type Origin, type OriginOptions } from "../contract.ts";
import { LINGER_MS } from "../shared/response-answer.ts";
import { type Carrier, Exchange } from "./exchange.ts";

/** Shorter than the five seconds after which common servers close an idle connection. */
const IDLE_MS = 4_000;
const IDLE_MAX = 512;
const CONNECT_MS = 10_000;
const KEEP_ALIVE_MS = 30_000;

/**
 * HTTP/1.1 to one plain-http server over kept connections. The runtime's `fetch` runs on a thread of its own
 * and wraps everything in web streams, which costs a gateway more than its own work; this is the part of HTTP
 * that a POST needs, on sockets of the event loop.
 */
export class HttpOrigin implements Origin {
  readonly #hostname: string;
  readonly #port: number;
  readonly #fixedHead: string;
  readonly #clock: Clock;
  readonly #errorOf: OriginOptions["errorOf"];
  readonly #idle: Connection[] = [];
  #cancelSweep: (() => void) | null = null;
  #closed = false;

  constructor({ url, headers, errorOf }: OriginOptions, clock: Clock) {
    this.#errorOf = errorOf;
    const { hostname, port, host } = new URL(url);
    // Sockets want an IPv6 address without the brackets that a URL has around it.
    this.#hostname = hostname.replace(/^\[(.*)\]$/, "$1");
    this.#port = Number(port || 80);
    this.#clock = clock;
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${headerValue(name, value)}\r\n`);
    this.#fixedHead = ` HTTP/1.1\r\nhost: ${host}\r\n${lines.join("")}content-length: `;
  }

  post(path: string, body: Uint8Array | string, abort: Pick<ModelCall, "whenAborted">): Promise<Answer> {
    const bytes = typeof body === "string" ? Buffer.from(body) : body;
    const head = `POST ${path}${this.#fixedHead}${bytes.length}\r\n\r\n`;
    const exchange = new Exchange(head, bytes, this.#errorOf);
    abort.whenAborted((reason) => exchange.failed(reason));
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
    const fail = (error: unknown) => exchange.failed(connectError(error));
    const giveUp = this.#clock.after(CONNECT_MS, () => {
      fail(new Error(`no connection within ${CONNECT_MS} ms`));
    });
    Bun.connect({ hostname: this.#hostname, port: this.#port, data: connection, socket: HANDLERS })
      .then(() => (exchange.isOver ? connection.free() : connection.carry(exchange)), fail)
      .finally(giveUp);
  }

  #take(): Connection | null {
    const oldestMs = this.#clock.now() - IDLE_MS;
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

  /** The oldest stand first. */
  #sweep(): void {
    this.#cancelSweep = null;
    const oldestMs = this.#clock.now() - IDLE_MS;
    const firstYoung = this.#idle.findIndex(({ idleSinceMs }) => idleSinceMs > oldestMs);
    for (const old of this.#idle.splice(0, firstYoung === -1 ? this.#idle.length : firstYoung)) old.destroy();
    if (this.#idle.length > 0) this.#cancelSweep = this.#clock.after(IDLE_MS, () => this.#sweep());
  }

  /** Closes what is idle; answers that are under way end on their own. */
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
  /** The server closed a kept connection just as it was used: the request goes over a new one. */
  again: (exchange: Exchange) => void;
}

class Connection implements Carrier, Recipient {
  idleSinceMs = 0;
  #socket: Socket<Connection> | null = null;
  #exchange: Exchange | null = null;
  #outbox: Outbox | null = null;
  #carried = 0;
  #isPaused = false;
  #cancelLinger: (() => void) | null = null;

  constructor(readonly options: ConnectionOptions) {}

  opened(socket: Socket<Connection>): void {
    this.#socket = socket;
    this.#outbox = new Outbox(socket);
    socket.setNoDelay(true);
    // A model may think for minutes without a byte; what is between must not forget the connection meanwhile.
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
  }

  carry(exchange: Exchange): void {
    this.#carried++;
    this.#exchange = exchange;
    exchange.carriedBy(this);
    // It may have been closed between being opened or kept and being used.
    if (this.#outbox) this.#outbox.sendMessage(exchange.head, exchange.body);
    else this.disconnected(null);
  }

  drained(): void {
    this.#outbox?.drained();
  }

  received(bytes: Buffer): void {
    // Nothing was asked, so nothing should come: such a connection is not to be trusted with a request.
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
    if (this.#carried > 1 && !exchange.hasBegun) this.options.again(exchange);
    else exchange.disconnected(error);
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
    this.#cancelLinger ??= this.options.clock.after(LINGER_MS, () => this.destroy());
  }

  done(isReusable: boolean): void {
    this.#exchange = null;
    this.#cancelLinger?.();
    this.#cancelLinger = null;
    // A request that was answered before it was sent in full leaves its rest in the way.
    if (!isReusable || (this.#outbox?.waitingBytes ?? 0) > 0) {
      this.destroy();
      return;
    }
    this.resume();
    this.free();
  }

  free(): void {
    this.idleSinceMs = this.options.clock.now();
    this.options.idle(this);
  }

  destroy(): void {
    this.#socket?.terminate();
    this.#socket = null;
    this.#outbox = null;
  }

  broke(error: unknown): void {
    this.#exchange?.failed(new BackendError("transport", `the answer could not be read: ${String(error)}`));
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

/** A line break in a header's value would be the beginning of another header. */
function headerValue(name: string, value: string): string {
  if (/[\r\n\0]/.test(value)) throw new BackendError("request", `the header ${name} has a line break in it`);
  return value;
}

const connectError = (error: unknown): BackendError =>
  new BackendError("connect", `cannot connect to the upstream: ${(error as Error).message}`);
