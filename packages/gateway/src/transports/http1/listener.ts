import type { Socket, TCPSocketListenOptions } from "bun";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { arrived, departed } from "../../kernel/sockets/inbox.ts";
import { Connection, type ConnectionOptions } from "./connection.ts";
import { SPARE_AFTER_MS } from "./limits.ts";
import { REFUSED_FOR_NOW } from "./wire.ts";

/** How often the connections are looked at for clients that keep us waiting. */
const SWEEP_MS = 1_000;
/** A client that vanished without a word is noticed by the kernel's own questions. */
const KEEP_ALIVE_MS = 60_000;
/** When there are too many connections, how often those that can be spared are looked for, and it is logged. */
const MAKE_ROOM_EVERY_MS = 1_000;
const FULL_LOGGED_EVERY_MS = 60_000;

/** Whose connection was not accepted. */
const NOBODY = { received() {}, drained() {}, disconnected() {}, broke() {} };

export interface ListenerOptions
  extends Pick<ConnectionOptions, "handle" | "newRequestId" | "messageBytesMax" | "bufferBytesMax"> {
  host: string;
  port: number;
  /** Lets several processes listen on one port. */
  reusePort: boolean;
  /** More are turned away: without a file for a new one, the system would call us about it for ever. */
  connectionsMax: number;
  /** One was turned away. */
  refused(): void;
  /** Of the network, so real time, whatever time the rest is told. */
  clock: Clock;
  log: Log;
}

/**
 * HTTP/1.1 and WebSockets on one port. The runtime's own server makes web objects of every request, which costs
 * a gateway more than its own work; this is what our clients need of HTTP, on plain sockets.
 */
export class Listener {
  readonly port: number;
  readonly #connections = new Set<Connection>();
  readonly #listener: { stop(closeActive?: boolean): void; readonly port: number };
  readonly #endSweeps: () => void;
  #whenEmpty: (() => void)[] = [];
  #isStopped = false;
  #nextRoomAtMs = 0;
  #nextLoggedAtMs = 0;

  constructor(readonly options: ListenerOptions) {
    const { host, port, reusePort, clock } = options;
    const connections = this.#connections;
    const shared: ConnectionOptions & { isRetiring: boolean } = {
      ...options,
      clock,
      isRetiring: false,
      gone: (connection) => this.#gone(connection),
    };
    const listen: TCPSocketListenOptions<Connection | typeof NOBODY> & { reusePort: boolean } = {
      hostname: host,
      port,
      reusePort,
      socket: {
        open: (socket) => {
          if (!this.#hasRoom()) {
            socket.data = NOBODY;
            socket.end(REFUSED_FOR_NOW);
            return;
          }
          socket.setNoDelay(true);
          socket.setKeepAlive(true, KEEP_ALIVE_MS);
          const connection = new Connection(socket, shared);
          socket.data = connection;
          connections.add(connection);
        },
        data: (socket: Socket<Connection | typeof NOBODY>, bytes: Buffer) => arrived(socket.data, bytes),
        drain: (socket) => socket.data.drained(),
        close: (socket) => departed(socket.data, null),
        // Called for what one of the above has thrown.
        error: (socket, error) => socket.data.broke(error),
      },
    };
    this.#listener = Bun.listen(listen);
    this.port = this.#listener.port;
    this.#endSweeps = clock.every(SWEEP_MS, () => {
      const nowMs = clock.now();
      for (const connection of connections) connection.check(nowMs);
    });
    this.retire = () => {
      shared.isRetiring = true;
    };
  }

  /** From now on every answer ends its connection, so that clients go elsewhere before the listener closes. */
  readonly retire: () => void;

  get connectionCount(): number {
    return this.#connections.size;
  }

  /** No new connections; resolves when the open ones are done. With `now` they are broken off. */
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
    if (this.#connections.size > 0) await new Promise<void>((resolve) => this.#whenEmpty.push(resolve));
    this.#endSweeps();
  }

  /** Makes room where clients keep connections that they do not use. */
  #hasRoom(): boolean {
    const { connectionsMax, clock, log } = this.options;
    if (this.#connections.size < connectionsMax) return true;
    const nowMs = clock.now();
    if (nowMs >= this.#nextRoomAtMs) {
      this.#nextRoomAtMs = nowMs + MAKE_ROOM_EVERY_MS;
      for (const connection of [...this.#connections]) connection.spare(nowMs - SPARE_AFTER_MS);
      if (this.#connections.size < connectionsMax) return true;
    }
    this.options.refused();
    if (nowMs >= this.#nextLoggedAtMs) {
      this.#nextLoggedAtMs = nowMs + FULL_LOGGED_EVERY_MS;
      const hint = "raise the limit of open files and SERVICE_CONNECTIONS_MAX, or start more instances";
      log.warn("too many connections: new ones are turned away", { connections: connectionsMax, hint });
    }
    return false;
  }

  #gone(connection: Connection): void {
    this.#connections.delete(connection);
    if (this.#connections.size > 0) return;
    for (const resolve of this.#whenEmpty.splice(0)) resolve();
  }
}
