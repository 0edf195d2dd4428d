import { ConnectionError } from "./errors.ts";
import type { RpcReply, RpcRequest } from "./rpc.ts";

/** What the service lets one socket have under way; more calls wait their turn here. */
const IN_FLIGHT_MAX = 60;
const WAITING_MAX = 1_000;

/** The part of WebSocket that is used, so that any implementation can be handed in. */
export interface SocketLike {
  send(text: string): void;
  close(): void;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
}
export type SocketConstructor = new (url: string) => SocketLike;

interface Pending {
  resolve(reply: RpcReply): void;
  reject(error: Error): void;
}

/** One socket and the calls that are under way on it. */
class Connection {
  readonly #opened: Promise<SocketLike>;
  readonly #pending = new Map<number, Pending>();
  #waiting: (() => void)[] = [];
  #retired = false;
  closed = false;

  constructor(
    url: string,
    Socket: SocketConstructor,
    readonly token: string,
  ) {
    this.#opened = new Promise((resolve, reject) => {
      const socket = new Socket(`${url}?token=${encodeURIComponent(token)}`);
      socket.onopen = () => resolve(socket);
      socket.onmessage = (event: never) => {
        const reply = JSON.parse(String((event as { data: unknown }).data)) as RpcReply;
        this.#pending.get(reply.id)?.resolve(reply);
      };
      socket.onerror = () => socket.close();
      socket.onclose = () => {
        this.closed = true;
        reject(new ConnectionError("the WebSocket could not be opened"));
        for (const call of this.#pending.values())
          call.reject(new ConnectionError("the connection was lost"));
      };
    });
  }

  async call(request: RpcRequest): Promise<RpcReply> {
    while (this.#pending.size >= IN_FLIGHT_MAX) {
      if (this.#waiting.length >= WAITING_MAX) throw new Error(`more than ${WAITING_MAX} calls are waiting`);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    const answered = new Promise<RpcReply>((resolve, reject) =>
      this.#pending.set(request.id, { resolve, reject }),
    );
    try {
      (await this.#opened).send(JSON.stringify(request));
      return await answered;
    } finally {
      this.#pending.delete(request.id);
      this.#waiting.shift()?.();
      if (this.#retired) this.retire();
    }
  }

  /** Closes as soon as nothing is under way. */
  retire(): void {
    this.#retired = true;
    if (this.#pending.size > 0 || this.#waiting.length > 0) return;
    this.#opened.then(
      (socket) => socket.close(),
      () => {},
    );
  }
}

/** JSON-RPC over one WebSocket, opened when first needed and again after it broke or the token changed. */
export class RpcSocket {
  #connection: Connection | null = null;

  constructor(
    readonly url: string,
    readonly Socket: SocketConstructor,
  ) {}

  call(request: RpcRequest, token: string): Promise<RpcReply> {
    const current = this.#connection;
    if (current && !current.closed && current.token === token) return current.call(request);
    current?.retire();
    this.#connection = new Connection(this.url, this.Socket, token);
    return this.#connection.call(request);
  }

  close(): void {
    this.#connection?.retire();
    this.#connection = null;
  }
}
