/** One link to an engine, many flattened sessions; each call has a timeout, and a closing session or link rejects its pending calls. */

import type { ProtocolMapping } from "devtools-protocol/types/protocol-mapping.d.ts";
import type { CdpMessage, EngineTransport } from "../engines/contract.ts";
import { ToolError } from "../errors.ts";

export type Commands = ProtocolMapping.Commands;
export type Events = ProtocolMapping.Events;
export type Params<M extends keyof Commands> = Commands[M]["paramsType"][0];
export type Result<M extends keyof Commands> = Commands[M]["returnType"];
export type EventParams<E extends keyof Events> = Events[E][0];

export const callTimeoutMsDefault = 30_000;
const methodNotFound = -32601;

interface Pending {
  method: string;
  session: CdpSession;
  resolve: (result: never) => void;
  reject: (error: Error) => void;
  timer: ReturnType<typeof setTimeout>;
}

type Listener = (params: never) => void;

/** A command that the browser refused, with its error message. */
export class CdpError extends Error {
  readonly method: string;
  readonly cdpCode: number;

  constructor(method: string, cdpCode: number, message: string) {
    super(`${method}: ${message}`);
    this.name = "CdpError";
    this.method = method;
    this.cdpCode = cdpCode;
  }
}

/** An engine may support only part of the protocol; callers can fall back. */
function refusal(method: string, { code, message }: NonNullable<CdpMessage["error"]>): Error {
  if (code !== methodNotFound) return new CdpError(method, code, message);
  return new ToolError(
    "not_supported",
    `This browser engine cannot do that: ${message}. Use another backend for it.`,
  );
}

export class CdpSession {
  readonly id: string | undefined;
  readonly #connection: CdpConnection;
  readonly #listeners = new Map<string, Set<Listener>>();
  /** Set once the target is gone; later calls fail with it at once. */
  ended: ToolError | null = null;

  constructor(connection: CdpConnection, id: string | undefined) {
    this.#connection = connection;
    this.id = id;
  }

  send<M extends keyof Commands>(
    method: M,
    params?: Params<M>,
    timeoutMs: number = callTimeoutMsDefault,
  ): Promise<Result<M>> {
    return this.#connection.call(this, method, params as object | undefined, timeoutMs);
  }

  /** For commands whose outcome changes nothing: a failure (mostly a target that has gone) is ignored. */
  tell<M extends keyof Commands>(method: M, params?: Params<M>): void {
    this.send(method, params).catch(() => {});
  }

  on<E extends keyof Events>(event: E, listener: (params: EventParams<E>) => void): () => void {
    let set = this.#listeners.get(event);
    if (!set) {
      set = new Set();
      this.#listeners.set(event, set);
    }
    set.add(listener as Listener);
    return () => set.delete(listener as Listener);
  }

  emit(event: string, params: unknown): void {
    const set = this.#listeners.get(event);
    if (set) for (const listener of [...set]) listener(params as never);
  }

  /** Rejects everything pending with the reason; the session is dead afterwards. */
  end(error: ToolError): void {
    if (this.ended) return;
    this.ended = error;
    this.#connection.rejectSession(this, error);
  }
}

export class CdpConnection {
  readonly root: CdpSession;
  readonly #transport: EngineTransport;
  readonly #sessions = new Map<string, CdpSession>();
  readonly #pending = new Map<number, Pending>();
  #nextId = 1;
  closedReason: string | null = null;
  onClose: (reason: string) => void = () => {};

  constructor(transport: EngineTransport) {
    this.#transport = transport;
    this.root = new CdpSession(this, undefined);
    transport.onMessage = (message) => this.#receive(message);
    transport.onClose = (reason) => this.#closed(reason);
  }

  session(id: string): CdpSession {
    let session = this.#sessions.get(id);
    if (!session) {
      session = new CdpSession(this, id);
      this.#sessions.set(id, session);
    }
    return session;
  }

  call<T>(session: CdpSession, method: string, params: object | undefined, timeoutMs: number): Promise<T> {
    if (session.ended) return Promise.reject(session.ended);
    const id = this.#nextId++;
    return new Promise<T>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#pending.delete(id);
        reject(
          new ToolError(
            "timeout",
            `The browser did not answer ${method} within ${Math.round(timeoutMs)} ms.`,
          ),
        );
      }, timeoutMs);
      this.#pending.set(id, { method, session, resolve: resolve as Pending["resolve"], reject, timer });
      this.#transport.send({ id, method, params, sessionId: session.id });
    });
  }

  rejectSession(session: CdpSession, error: ToolError): void {
    if (session.id) this.#sessions.delete(session.id);
    for (const [id, pending] of this.#pending) {
      if (pending.session !== session) continue;
      this.#pending.delete(id);
      clearTimeout(pending.timer);
      pending.reject(error);
    }
  }

  close(): Promise<void> {
    return this.#transport.close();
  }

  #receive(message: CdpMessage): void {
    if (message.id === undefined) {
      const session = message.sessionId ? this.#sessions.get(message.sessionId) : this.root;
      if (session && message.method) session.emit(message.method, message.params);
      return;
    }
    const pending = this.#pending.get(message.id);
    if (!pending) return;
    this.#pending.delete(message.id);
    clearTimeout(pending.timer);
    if (message.error) pending.reject(refusal(pending.method, message.error));
    else pending.resolve((message.result ?? {}) as never);
  }

  #closed(reason: string): void {
    this.closedReason = reason;
    const error = new ToolError(
      "browser_unavailable",
      `The browser is gone (${reason}). Call again: a new browser is started.`,
    );
    for (const session of [...this.#sessions.values(), this.root]) session.end(error);
    this.onClose(reason);
  }
}
