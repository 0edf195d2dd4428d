/** A server on loopback that passes each connection on to another one. */
import { createServer, type Socket } from "node:net";

const connectionsMax = 1_000;
const bufferedBytesMax = 64 * 1024;

export interface Relay {
  port: number;
  /** Passes on what either of them says, until one ends. */
  join(client: Socket, upstream: Socket): void;
  close(): void;
}

/** `serve` reads what the client wants and joins it with its upstream. */
export async function openRelay(serve: (client: Socket, relay: Relay) => Promise<void>): Promise<Relay> {
  const sockets = new Set<Socket>();
  const track = (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    // A broken connection shows itself to the other side as the end of its data.
    socket.on("error", () => socket.destroy());
  };
  const server = createServer({ noDelay: true }, (client) => {
    track(client);
    if (sockets.size > connectionsMax) client.destroy();
    else serve(client, relay).catch(() => client.destroy());
  });
  const relay: Relay = {
    port: 0,
    join(client, upstream) {
      track(upstream);
      if (client.destroyed) upstream.destroy();
      upstream.on("close", () => client.destroy());
      client.on("close", () => upstream.destroy());
      upstream.pipe(client);
      client.pipe(upstream);
    },
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  server.unref();
  relay.port = (server.address() as { port: number }).port;
  return relay;
}

/** Reads exact numbers of bytes from a socket during a handshake, then lets go of it. */
export class HandshakeReader {
  #buffered = Buffer.alloc(0);
  #wake: (() => void) | null = null;
  #failure: Error | null = null;
  readonly #socket: Socket;
  readonly #onData = (chunk: Buffer) => {
    this.#buffered = Buffer.concat([this.#buffered, chunk]);
    if (this.#buffered.length > bufferedBytesMax) this.#onError(new Error("the handshake is too long"));
    this.#wake?.();
  };
  readonly #onEnd = () => this.#onError(new Error("the connection was closed"));
  readonly #onError = (error: Error) => {
    this.#failure ??= error;
    this.#wake?.();
  };

  constructor(socket: Socket) {
    this.#socket = socket;
    socket
      .on("data", this.#onData)
      .on("close", this.#onEnd)
      .on("end", this.#onEnd)
      .on("error", this.#onError);
  }

  async take(count: number): Promise<Buffer> {
    while (this.#buffered.length < count) {
      if (this.#failure) throw this.#failure;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const taken = this.#buffered.subarray(0, count);
    this.#buffered = this.#buffered.subarray(count);
    return taken;
  }

  /** Bytes that already belong to the connection go back in front of it. */
  release(): void {
    const socket = this.#socket.pause();
    socket
      .off("data", this.#onData)
      .off("close", this.#onEnd)
      .off("end", this.#onEnd)
      .off("error", this.#onError);
    if (this.#buffered.length > 0) socket.unshift(this.#buffered);
  }
}
