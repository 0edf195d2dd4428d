import type { Socket, SocketHandler, TCPSocketListenOptions, TLSUpgradeOptions } from "bun";
import type { Clock } from "../clock.ts";
import type { WireLog } from "../log.ts";
import { arrived, departed } from "../turns/inbox.ts";
import { Connection, type ConnectionOptions } from "./connection.ts";
import { IDLE_AFTER_MS } from "./limits.ts";
import { REFUSED_FOR_NOW } from "./reply-head.ts";
import { type StrangerLimits, Strangers } from "./strangers.ts";

/** How often connections are checked against their deadlines. */
const SWEEP_MS = 1_000;
/** While it stops, connections wait only for a moment. */
const STOPPING_SWEEP_MS = 100;
/** TCP keep-alive probes find clients that vanished without closing. */
const KEEP_ALIVE_MS = 60_000;
/** At the connection limit: how often idle connections are looked for, and how often it is logged. */
const SPARE_EVERY_MS = 1_000;
const FULL_LOGGED_EVERY_MS = 60_000;

/** The data of a connection that was not accepted. */
const NOBODY = { received() {}, drained() {}, disconnected() {}, broke() {} };

export interface ListenerOptions
  extends Pick<ConnectionOptions, "handle" | "newRequestId" | "messageBytesMax" | "bufferBytesMax"> {
  host: string;
  port: number;
  /** Lets several processes listen on one port. */
  reusePort: boolean;
  /** More are turned away: with no file descriptor left, `accept` would fail in an endless loop. */
  connectionsMax: number;
  /** What to do when that limit is reached; logged with the warning. */
  connectionsMaxHint?: string;
  /** Speaks TLS with this. Asked for each connection, so that a renewed one is used from then on. Unset: plain HTTP. */
  certificate?: () => Certificate;
  /** For callers that are not vouched for; null: none beside `connectionsMax`. */
  strangers: StrangerLimits | null;
  /** A connection was turned away. */
  refused(): void;
  /** Deadlines on the network: real time, except in tests of the server itself. */
  clock: Clock;
  log: WireLog;
}

/** In PEM: the certificate, followed by those it depends on, and its private key. */
export interface Certificate {
  cert: string;
  key: string;
}

type Events = Connection | typeof NOBODY;

/**
 * HTTP/1.1 and WebSockets on one port, on plain sockets. The runtime's own server creates web objects for every
 * request, which can cost more than handling it (docs/decisions/013).
 */
export class Listener {
  readonly port: number;
  readonly #connections = new Set<Connection>();
  readonly #strangers: Strangers | null;
  readonly #listener: { stop(closeActive?: boolean): void; readonly port: number };
  readonly #sweep: () => void;
  #endSweeps: () => void;
  #whenEmpty: (() => void)[] = [];
  #isStopped = false;
  #nextSpareAtMs = 0;
  #nextLoggedAtMs = 0;

  constructor(readonly options: ListenerOptions) {
    const { host, port, reusePort, clock } = options;
    const connections = this.#connections;
    this.#strangers = options.strangers && new Strangers(options.strangers);
    const strangers = this.#strangers;
    const shared: ConnectionOptions & { isRetiring: boolean } = {
      ...options,
      clock,
      isRetiring: false,
      gone: (connection) => this.#gone(connection),
      vouched: (connection) => strangers?.delete(connection),
    };
    const { certificate } = options;
    const handlers: SocketHandler<Events> = {
      data: (socket: Socket<Events>, bytes: Buffer) => arrived(socket.data, bytes),
      drain: (socket) => socket.data.drained(),
      close: (socket) => departed(socket.data, null),
      // Called with whatever one of the handlers above throws.
      error: (socket, error) => socket.data.broke(error),
    };
    const turnAway = (socket: Socket<Events>) => {
      socket.data = NOBODY;
      // Before a handshake nothing can be said that the client would understand.
      if (certificate) socket.terminate();
      else socket.end(REFUSED_FOR_NOW);
    };
    const listen: TCPSocketListenOptions<Events> & { reusePort: boolean } = {
      hostname: host,
      port,
      reusePort,
      socket: {
        ...handlers,
        open: (accepted) => {
          if (!this.#admits()) return turnAway(accepted);
          accepted.setNoDelay(true);
          accepted.setKeepAlive(true, KEEP_ALIVE_MS);
          const socket = certificate ? secured(accepted, certificate(), handlers) : accepted;
          const connection = new Connection(socket, shared);
          if (strangers && !strangers.admit(connection)) {
            this.#turnedAway();
            return turnAway(socket);
          }
          socket.data = connection;
          connections.add(connection);
        },
      },
    };
    this.#listener = Bun.listen(listen);
    this.port = this.#listener.port;
    this.#sweep = () => {
      const nowMs = clock.now();
      for (const connection of connections) connection.check(nowMs);
    };
    this.#endSweeps = clock.every(SWEEP_MS, this.#sweep);
    this.retire = () => {
      shared.isRetiring = true;
    };
  }

  /** From now on every reply closes its connection, so that clients move on before the listener closes. */
  readonly retire: () => void;

  get connectionCount(): number {
    return this.#connections.size;
  }

  /** Stops accepting; resolves when the open connections are done. With `now` they are cut off. */
  async stop(now = false): Promise<void> {
    this.retire();
    if (!this.#isStopped) {
      this.#isStopped = true;
      this.#listener.stop();
    }
    for (const connection of [...this.#connections]) {
      if (now) connection.terminate();
      else connection.retire();
    }
    this.#endSweeps();
    if (this.#connections.size === 0) return;
    this.#endSweeps = this.options.clock.every(STOPPING_SWEEP_MS, this.#sweep);
    await new Promise<void>((resolve) => this.#whenEmpty.push(resolve));
    this.#endSweeps();
  }

  /** At the limit, closes idle connections to admit a new one. */
  #admits(): boolean {
    const { connectionsMax, clock } = this.options;
    if (this.#connections.size < connectionsMax) return true;
    const nowMs = clock.now();
    if (nowMs >= this.#nextSpareAtMs) {
      this.#nextSpareAtMs = nowMs + SPARE_EVERY_MS;
      for (const connection of [...this.#connections]) connection.closeIfIdleSince(nowMs - IDLE_AFTER_MS);
      if (this.#connections.size < connectionsMax) return true;
    }
    // The new connection may be that of someone who is signed in, and goes before one that is not.
    if (this.#strangers?.makeRoom()) return true;
    this.#turnedAway();
    return false;
  }

  #turnedAway(): void {
    const { connectionsMax, connectionsMaxHint, clock, log } = this.options;
    const nowMs = clock.now();
    this.options.refused();
    if (nowMs >= this.#nextLoggedAtMs) {
      this.#nextLoggedAtMs = nowMs + FULL_LOGGED_EVERY_MS;
      const fields = { connections: connectionsMax, hint: connectionsMaxHint };
      log.warn("too many connections: new ones are turned away", fields);
    }
  }

  #gone(connection: Connection): void {
    this.#connections.delete(connection);
    this.#strangers?.delete(connection);
    if (this.#connections.size > 0) return;
    for (const resolve of this.#whenEmpty.splice(0)) resolve();
  }
}

/** What the runtime calls a TLS session that its client broke: bytes that are not TLS, or that do not decrypt. */
const TLS_FAILURE = /^ERR_(SSL|TLS)_|^(UNABLE_TO|CERT_|ECONNRESET|EPIPE)/;

/**
 * The server's end of TLS on an accepted connection, which so counts, and has its deadline, from the moment it is
 * accepted: a client that never finishes the handshake is closed like one that never sends a request.
 */
function secured(
  accepted: Socket<Events>,
  { cert, key }: Certificate,
  handlers: SocketHandler<Events>,
): Socket<Events> {
  accepted.data = NOBODY;
  const options: TLSUpgradeOptions<Events> & { isServer: true } = {
    isServer: true,
    data: NOBODY,
    tls: { cert, key },
    socket: {
      ...handlers,
      // Without it nothing would be told of a handshake that failed until its client leaves.
      handshake: (socket, isEstablished) => {
        if (!isEstablished) socket.terminate();
      },
      error: (socket, error) => {
        if (TLS_FAILURE.test(String((error as { code?: unknown }).code))) socket.terminate();
        else socket.data.broke(error);
      },
    },
  };
  const [, socket] = accepted.upgradeTLS(options);
  return socket;
}
