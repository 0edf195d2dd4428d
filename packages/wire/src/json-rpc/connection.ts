import type { Clock } from "../clock.ts";
import { socketFailure } from "../websocket/dial-failure.ts";
import { RpcAnswerError, RpcSocketError } from "./errors.ts";

/** A larger message ends the connection, unless the options set another limit. */
const MESSAGE_CHARS_MAX = 64 * 1024 * 1024;
/** With more unsent bytes than this, the peer is not keeping up and nothing more is queued. */
const SEND_BUFFER_BYTES_MAX = 8 * 1024 * 1024;
const CALLS_IN_FLIGHT_MAX = 4_096;
/** A peer that does not answer a ping within this time is gone, even if the connection looks open. */
const PING_PERIOD_MS = 20_000;
/** Abandoned calls whose answers may still arrive. */
const ABANDONED_MAX = 4_096;

/** Bun's WebSocket can send headers, ping and terminate; the DOM's type has none of that. */
const Socket = WebSocket as unknown as new (url: string, options?: Bun.WebSocketOptions) => LinkSocket;
type LinkSocket = WebSocket & { terminate(): void; ping(): void };

export interface RpcCallOptions {
  signal?: AbortSignal;
  /** Without it, only the signal and the end of the connection abandon the call. */
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

/** One open WebSocket that carries JSON-RPC 2.0 calls, many at a time. Any protocol error closes it. */
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
          // A peer that sent nothing at all since then is taken for dead; otherwise only this connection is retired.
          if (this.#lastMessageAtMs < sentAtMs) this.#drop(`no sign of life within ${timeoutMs} ms`);
          else this.retire();
        };
        cleanup.push(this.#options.clock.after(timeoutMs, expire));
      }
      this.#socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
  }

  /** The peer is not reading fast enough. */
  get congested(): boolean {
    return this.#socket.bufferedAmount > SEND_BUFFER_BYTES_MAX;
  }

  /** False when it could not be queued. */
  notify(method: string, params: Record<string, unknown>): boolean {
    if (this.#closedBecause !== null || this.congested) return false;
    this.#socket.send(JSON.stringify({ jsonrpc: "2.0", method, params }));
    return true;
  }

  /** Keeps the connection open after `retire`, until the returned function is called. */
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

  /** Calls `listener` at once when the connection is already closed. The returned function unsubscribes. */
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

  /** Without a closing handshake, for a peer that is gone or misbehaves. */
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

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function parseMessage(data: unknown, charsMax: number): Record<string, unknown> | null {
  if (typeof data !== "string" || data.length > charsMax) return null;
  try {
    const message: unknown = JSON.parse(data);
    return isObject(message) ? message : null;
  } catch {
    return null;
  }
}
