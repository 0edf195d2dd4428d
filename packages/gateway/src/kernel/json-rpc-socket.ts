import type { Clock } from "./clock.ts";
import { isObject } from "./json.ts";
import { socketFailure } from "./shown-address.ts";

/** A larger message ends the connection, unless the user of the client sets another limit. */
const MESSAGE_CHARS_MAX = 64 * 1024 * 1024;
/** Above this many unsent bytes the peer does not keep up, and nothing more is queued for it. */
const SEND_BUFFER_BYTES_MAX = 8 * 1024 * 1024;
const CALLS_IN_FLIGHT_MAX = 4_096;
/** A peer that answers no ping within this time is gone, however open the connection looks. */
const PING_PERIOD_MS = 20_000;
/** Calls given up here whose answers may still come. */
const ABANDONED_MAX = 4_096;

/** The runtime's WebSocket, which can send headers, ping and end at once; the browser's type knows none of it. */
const Socket = WebSocket as unknown as new (url: string, options?: Bun.WebSocketOptions) => LinkSocket;
type LinkSocket = WebSocket & { terminate(): void; ping(): void };

/** The peer answered with a JSON-RPC error object. */
export class RpcAnswerError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly data?: unknown,
  ) {
    super(message);
    this.name = "RpcAnswerError";
  }
}

/**
 * The call got no answer.
 * - `connect`: the connection or its handshake failed, so the call was never sent
 * - `busy`: too much is queued or in flight, so it was never sent either
 * - `lost`: the connection ended after it was sent; `timeout`: no answer came in time
 */
export class RpcSocketError extends Error {
  constructor(
    readonly reason: "connect" | "busy" | "lost" | "timeout",
    message: string,
  ) {
    super(message);
    this.name = "RpcSocketError";
  }
}

export interface RpcCallOptions {
  signal?: AbortSignal;
  /** None: only the signal and the connection's end give the call up. */
  timeoutMs?: number;
}

interface Pending {
  method: string;
  sentAtMs: number;
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

export interface ConnectOptions {
  url: string;
  headers?: Record<string, string>;
  clock: Clock;
  connectTimeoutMs: number;
  messageCharsMax?: number;
  /** Absent: a peer that sends notifications breaks the protocol. */
  onNotification?: (method: string, params: Record<string, unknown>) => void;
}

/** One open WebSocket that carries JSON-RPC 2.0 calls, many at a time. Any breach of the protocol ends it. */
export class RpcConnection {
  readonly #socket: LinkSocket;
  readonly #options: ConnectOptions;
  readonly #pending = new Map<number, Pending>();
  readonly #abandoned = new Set<number>();
  readonly #closeListeners = new Set<(reason: string) => void>();
  #nextId = 1;
  #holds = 0;
  #retired = false;
  #closedBecause: string | null = null;
  #lastMessageAtMs = 0;
  readonly #endPings: () => void;

  private constructor(socket: LinkSocket, options: ConnectOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#endPings = this.#startPings();
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code, reason }) =>
      this.#drop(`the connection was closed by the other side (${code}${reason ? ` ${reason}` : ""})`);
    socket.onerror = () => this.#drop("the connection broke");
  }

  static open(options: ConnectOptions): Promise<RpcConnection> {
    const { url, headers, clock, connectTimeoutMs } = options;
    return new Promise((resolve, reject) => {
      let socket: LinkSocket | undefined;
      const fail = (why: string) => {
        cancelTimeout();
        reject(new RpcSocketError("connect", why));
      };
      const cancelTimeout = clock.after(connectTimeoutMs, () => {
        fail(`no connection within ${connectTimeoutMs} ms`);
        socket?.terminate();
      });
      try {
        socket = new Socket(url, { headers });
      } catch (error) {
        fail((error as Error).message);
        return;
      }
      const opened = socket;
      opened.onopen = () => {
        cancelTimeout();
        resolve(new RpcConnection(opened, options));
      };
      socket.onerror = (event) =>
        fail(socketFailure((event as ErrorEvent).message || "the connection failed"));
      socket.onclose = ({ code }) => fail(`the connection was refused (${code})`);
    });
  }

  /** Whether new calls may start here. */
  get usable(): boolean {
    return !this.#retired && this.#closedBecause === null;
  }

  call(
    method: string,
    params: Record<string, unknown> | undefined,
    { signal, timeoutMs }: RpcCallOptions = {},
  ): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      if (this.#closedBecause !== null) return reject(new RpcSocketError("lost", this.#closedBecause));
      if (this.#pending.size >= CALLS_IN_FLIGHT_MAX || this.congested)
        return reject(new RpcSocketError("busy", "too many calls wait for the other side"));
      const id = this.#nextId++;
      const sentAtMs = this.#options.clock.now();
      const cleanup: (() => void)[] = [this.hold()];
      const settle =
        <T>(outcome: (value: T) => void) =>
        (value: T) => {
          this.#pending.delete(id);
          for (const undo of cleanup) undo();
          outcome(value);
        };
      const pending = { method, sentAtMs, resolve: settle(resolve), reject: settle(reject) };
      this.#pending.set(id, pending);
      const giveUp = (error: unknown) => {
        this.#abandon(id);
        pending.reject(error);
      };
      if (signal) {
        const onAbort = () => giveUp(signal.reason);
        signal.addEventListener("abort", onAbort, { once: true });
        cleanup.push(() => signal.removeEventListener("abort", onAbort));
      }
      if (timeoutMs !== undefined) {
        const expire = () => {
          giveUp(new RpcSocketError("timeout", `${method} was not answered within ${timeoutMs} ms`));
          // A peer that said nothing at all meanwhile is taken for gone; one that did is only not asked again.
          if (this.#lastMessageAtMs < sentAtMs) this.#drop(`no sign of life within ${timeoutMs} ms`);
          else this.retire();
        };
        cleanup.push(this.#options.clock.after(timeoutMs, expire));
      }
      this.#socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
  }

  /** True while the peer is behind with reading. */
  get congested(): boolean {
    return this.#socket.bufferedAmount > SEND_BUFFER_BYTES_MAX;
  }

  /** False when it could not be queued. */
  notify(method: string, params: Record<string, unknown>): boolean {
    if (this.#closedBecause !== null || this.congested) return false;
    this.#socket.send(JSON.stringify({ jsonrpc: "2.0", method, params }));
    return true;
  }

  /** Keeps a retired connection open until the returned function is called: something still arrives on it. */
  hold(): () => void {
    this.#holds++;
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#holds--;
      this.#closeIfDone();
    };
  }

  /** Takes no new calls; closes once nothing is in flight. */
  retire(): void {
    this.#retired = true;
    this.#closeIfDone();
  }

  /** The returned function stops listening. Called at once when the connection is closed already. */
  onClose(listener: (reason: string) => void): () => void {
    if (this.#closedBecause !== null) {
      listener(this.#closedBecause);
      return () => {};
    }
    this.#closeListeners.add(listener);
    return () => this.#closeListeners.delete(listener);
  }

  close(reason: string): void {
    this.#end(reason, () => this.#socket.close(1000));
  }

  /** For a peer that is gone or cannot be trusted to take part in a goodbye. */
  #drop(reason: string): void {
    this.#end(reason, () => this.#socket.terminate());
  }

  #end(reason: string, goodbye: () => void): void {
    if (this.#closedBecause !== null) return;
    this.#closedBecause = reason;
    this.#endPings();
    this.#socket.onmessage = null;
    this.#socket.onerror = () => {};
    goodbye();
    for (const pending of [...this.#pending.values()]) pending.reject(new RpcSocketError("lost", reason));
    for (const listener of this.#closeListeners) listener(reason);
    this.#closeListeners.clear();
  }

  #startPings(): () => void {
    let heard = true;
    const hear = () => {
      heard = true;
    };
    this.#socket.addEventListener("pong", hear);
    this.#socket.addEventListener("message", hear);
    return this.#options.clock.every(PING_PERIOD_MS, () => {
      if (!heard) return this.#drop(`no sign of life within ${PING_PERIOD_MS} ms`);
      heard = false;
      this.#socket.ping();
    });
  }

  #closeIfDone(): void {
    if (this.#retired && this.#holds === 0) this.close("replaced by a new connection");
  }

  #abandon(id: number): void {
    if (this.#abandoned.size >= ABANDONED_MAX) this.#drop("too many calls were never answered");
    else this.#abandoned.add(id);
  }

  #receive(data: unknown): void {
    this.#lastMessageAtMs = this.#options.clock.now();
    const message = parseMessage(data, this.#options.messageCharsMax ?? MESSAGE_CHARS_MAX);
    if (!message) this.#drop("the other side sent something that is not a JSON-RPC message");
    else if (typeof message.method === "string") this.#receiveNotification(message.method, message);
    else this.#receiveAnswer(message);
  }

  #receiveNotification(method: string, { params }: Record<string, unknown>): void {
    const { onNotification } = this.#options;
    if (onNotification) onNotification(method, isObject(params) ? params : {});
    else this.#drop(`the other side sent ${method.slice(0, 100)}, which nobody asked for`);
  }

  #receiveAnswer({ id, result, error }: Record<string, unknown>): void {
    const pending = this.#pending.get(id as number);
    if (!pending) {
      if (!this.#abandoned.delete(id as number))
        this.#drop("the other side answered a call that was not made");
      return;
    }
    if (isObject(error)) {
      const message = typeof error.message === "string" ? error.message : `${pending.method} failed`;
      pending.reject(new RpcAnswerError(Number(error.code) || 0, message, error.data));
    } else if (result !== undefined) pending.resolve(result);
    else {
      pending.reject(new RpcSocketError("lost", `${pending.method} got an answer without a result`));
      this.#drop("the other side sent an answer without a result");
    }
  }
}

function parseMessage(data: unknown, charsMax: number): Record<string, unknown> | null {
  if (typeof data !== "string" || data.length > charsMax) return null;
  try {
    const message: unknown = JSON.parse(data);
    return isObject(message) ? message : null;
  } catch {
    return null;
  }
}

export interface RpcClientOptions extends ConnectOptions {
  /** Runs on each new connection before any call; a throw drops the connection. */
  handshake?: (connection: RpcConnection) => Promise<void>;
}

/** One connection, made when it is first needed and made anew after it was dropped. */
export class RpcClient {
  #current: RpcConnection | null = null;
  #connecting: Promise<RpcConnection> | null = null;
  #closed = false;
  constructor(readonly options: RpcClientOptions) {}

  /** The connection, with its handshake done. A caller that leaves does not disturb the others who wait. */
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

  /** Ends the connection; the next call makes a new one. */
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
export function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
