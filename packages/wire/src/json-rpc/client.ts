import { type ConnectOptions, type RpcCallOptions, RpcConnection } from "./connection.ts";
import { RpcSocketError } from "./errors.ts";

export interface RpcClientOptions extends ConnectOptions {
  /** Runs on each new connection before any call; a throw drops the connection. */
  handshake?: (connection: RpcConnection) => Promise<void>;
}

/** One connection, opened on first use and reopened after it was dropped. */
export class RpcClient {
  #current: RpcConnection | null = null;
  #connecting: Promise<RpcConnection> | null = null;
  #closed = false;
  constructor(readonly options: RpcClientOptions) {}

  /** The connection, after its handshake. A caller that aborts does not affect others that wait for it. */
  async connection(signal?: AbortSignal): Promise<RpcConnection> {
    if (this.#current?.usable) return this.#current;
    if (this.#closed) throw new RpcSocketError("connect", "the client is closed");
    signal?.throwIfAborted();
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = null;
    });
    return signal ? abortable(this.#connecting, signal) : this.#connecting;
  }

  async call(
    method: string,
    params: Record<string, unknown> | undefined,
    options: RpcCallOptions = {},
  ): Promise<unknown> {
    const connection = await this.connection(options.signal);
    return connection.call(method, params, options);
  }

  /** Closes the connection; the next call opens a new one. */
  drop(reason: string): void {
    this.#current?.close(reason);
  }

  close(): void {
    this.#closed = true;
    this.drop("closed here");
  }

  async #connect(): Promise<RpcConnection> {
    const { handshake } = this.options;
    const connection = await RpcConnection.open(this.options);
    try {
      await handshake?.(connection);
    } catch (error) {
      connection.close("the handshake failed");
      throw new RpcSocketError("connect", `handshake: ${(error as Error).message}`);
    }
    if (this.#closed) {
      connection.close("closed here");
      throw new RpcSocketError("connect", "the client is closed");
    }
    this.#current = connection;
    return connection;
  }
}

/** The promise's outcome, unless the signal fires first. */
function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
