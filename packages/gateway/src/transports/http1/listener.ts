import type { Socket, TCPSocketListenOptions } from "bun";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { arrived, departed } from "../../kernel/sockets/inbox.ts";
import { Connection, type ConnectionOptions } from "./connection.ts";

/** How often the connections are looked at for clients that keep us waiting. */
const SWEEP_MS = 1_000;
/** A client that vanished without a word is noticed by the kernel's own questions. */
const KEEP_ALIVE_MS = 60_000;

export interface ListenerOptions
  extends Pick<ConnectionOptions, "handle" | "newRequestId" | "messageBytesMax" | "bufferBytesMax"> {
  host: string;
  port: number;
  /** Lets several processes listen on one port. */
  reusePort: boolean;
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

  constructor({ host, port, reusePort, clock, ...options }: ListenerOptions) {
    const connections = this.#connections;
    const shared: ConnectionOptions & { isRetiring: boolean } = {
      ...options,
      clock,
      isRetiring: false,
      gone: (connection) => this.#gone(connection),
    };
    const listen: TCPSocketListenOptions<Connection> & { reusePort: boolean } = {
      hostname: host,
      port,
      reusePort,
      socket: {
        open(socket) {
          socket.setNoDelay(true);
          socket.setKeepAlive(true, KEEP_ALIVE_MS);
          const connection = new Connection(socket, shared);
          socket.data = connection;
          connections.add(connection);
        },
        data: (socket: Socket<Connection>, bytes: Buffer) => arrived(socket.data, bytes),
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

  #gone(connection: Connection): void {
    this.#connections.delete(connection);
    if (this.#connections.size > 0) return;
    for (const resolve of this.#whenEmpty.splice(0)) resolve();
  }
}
