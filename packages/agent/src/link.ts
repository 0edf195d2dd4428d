/**
 * The node's connection to the gateway: dialled from here, kept alive, and dialled again for as long as the
 * program runs. Losing it does not affect the engines.
 */

import {
  CloseCode,
  describeIssues,
  GATEWAY_METHODS,
  HEARTBEAT_INTERVAL_MS,
  HEARTBEATS_MISSED_MAX,
  type HeartbeatParams,
  type HelloParams,
  HelloResult,
  LEAVING_METHOD,
  type ProgressParams,
  parseRpcMessage,
  RpcErrorCode,
  type RpcMessage,
} from "@model-gateway/protocol/agent.ts";
import { SocketChannel } from "@model-gateway/protocol/tunnel/socket-channel.ts";
import { describeError, errorCode } from "./errors.ts";
import type { Log } from "./log.ts";
import { abortableDelay, backoffMs, jittered } from "./time.ts";
import { type EngineTarget, TunnelServer } from "./tunnel-server.ts";

/** Bun's client takes headers and can ping; the DOM's types, which the whole workspace shares, lack both. */
const DialledSocket = WebSocket as unknown as new (
  url: string,
  options: Bun.WebSocketOptions,
) => Bun.WebSocket;

const CONNECT_TIMEOUT_MS = 15_000;
/** Below this, silence may only mean that one side was busy for a moment. */
const SILENCE_FLOOR_MS = 3_000;
const RECONNECT = { initialMs: 1_000, maxMs: 30_000 };
/** Delay after a refusal that needs an operator. */
const RECONNECT_REFUSED_MS = 60_000;
/** A connection that lasted this long resets the backoff. */
const STABLE_AFTER_MS = 20_000;

export interface LinkOptions {
  url: string;
  token: string;
  log: Log;
  hello: () => Promise<HelloParams>;
  heartbeat: () => Promise<HeartbeatParams>;
  /** Executes a request of the gateway; what it returns is the answer, `{ok: true}` where it is nothing. Throws to refuse. */
  handlers: { [Method in keyof typeof GATEWAY_METHODS]: (params: never) => unknown };
  target: (modelId: string) => EngineTarget | null;
}

/** How a connection ended. */
interface Ending {
  message: string;
  openForMs: number;
  /** Whether to wait long before the next attempt. */
  patient: boolean;
  /** It goes on, for the requests that it carries: the instance stops. */
  isLeaving?: boolean;
}

export class GatewayLink {
  readonly #options: LinkOptions;
  readonly #stop = new AbortController();
  #session: Session | null = null;
  /** Connections to instances that stop, for the requests that began on them. */
  readonly #leaving = new Set<Session>();
  #lastComplaint = "";

  constructor(options: LinkOptions) {
    this.#options = options;
  }

  /** Connects, and connects again, until `stop`. */
  async run(): Promise<void> {
    const { log, url } = this.#options;
    const { signal } = this.#stop;
    let failures = 0;
    while (!signal.aborted) {
      const session = new Session(this.#options, () => {
        this.#lastComplaint = "";
        log.info("connected to the gateway", { url });
      });
      this.#session = session;
      const ending = await Promise.race([session.ended, session.leaving]);
      this.#session = null;
      if (signal.aborted) return;
      if (ending.isLeaving) {
        this.#leaving.add(session);
        void session.ended.then(() => this.#leaving.delete(session));
        log.info("this instance of the gateway stops; connecting to another");
        // Dialled at once, unless instance after instance says the same.
        failures = ending.openForMs >= STABLE_AFTER_MS ? 0 : failures + 1;
        if (failures <= 1) continue;
      }
      failures = ending.openForMs >= STABLE_AFTER_MS ? 1 : failures + 1;
      const delayMs = jittered(ending.patient ? RECONNECT_REFUSED_MS : backoffMs(failures, RECONNECT));
      this.#complain(ending.message, delayMs);
      await abortableDelay(delayMs, signal).catch(() => undefined);
    }
  }

  /** Tells the gateway, if it is there; after a reconnect the hello says it all again. */
  progress(params: ProgressParams): void {
    this.#session?.notify("agent.progress", params);
  }

  /** Requests of a model that are under way, on every connection. */
  openStreamsOf(modelId: string): number {
    return [this.#session, ...this.#leaving].reduce(
      (sum, each) => sum + (each?.openStreamsOf(modelId) ?? 0),
      0,
    );
  }

  /** Asks the gateway to serve this node's models elsewhere; resolves when it has, or there is no asking it. */
  async drain(timeoutMs: number): Promise<void> {
    const session = this.#session;
    if (session) await Promise.race([session.drain(), session.ended, Bun.sleep(timeoutMs)]);
  }

  stop(): void {
    this.#stop.abort();
    for (const session of [this.#session, ...this.#leaving]) session?.close("the node program ends");
  }

  /** The same failure is logged once, not at every attempt. */
  #complain(message: string, delayMs: number): void {
    if (message === this.#lastComplaint) return;
    this.#lastComplaint = message;
    this.#options.log.warn(`${message}; trying again`, { in_s: Math.ceil(delayMs / 1000) });
  }
}

/** One connection, from dialling to its end. */
class Session {
  readonly ended: Promise<Ending>;
  /** Resolves when the instance says that it stops. */
  readonly leaving: Promise<Ending>;
  readonly #options: LinkOptions;
  readonly #socket: Bun.WebSocket;
  readonly #channel: SocketChannel;
  readonly #tunnel: TunnelServer;
  readonly #finish: (ending: Ending) => void;
  readonly #leave: (ending: Ending) => void;
  readonly #onAccepted: () => void;
  #openedAtMs: number | null = null;
  #heardAtMs = Date.now();
  #trouble: string | null = null;
  #heartbeatIntervalMs = HEARTBEAT_INTERVAL_MS;
  #heartbeat: ReturnType<typeof setTimeout> | undefined;
  #connectTimer: ReturnType<typeof setTimeout>;
  #lastRequestId = 0;
  /** 0 until the hello was sent; nothing goes out before it. */
  #helloId = 0;
  #drained: { id: number; resolve(): void } | null = null;
  #over = false;

  constructor(options: LinkOptions, onAccepted: () => void) {
    this.#options = options;
    this.#onAccepted = onAccepted;
    const { promise, resolve } = Promise.withResolvers<Ending>();
    this.ended = promise;
    this.#finish = resolve;
    const { promise: leaving, resolve: leave } = Promise.withResolvers<Ending>();
    this.leaving = leaving;
    this.#leave = leave;
    const socket = new DialledSocket(options.url, { headers: { authorization: `Bearer ${options.token}` } });
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    this.#channel = new SocketChannel({
      send: (message) => void socket.send(message),
      bufferedBytes: () => socket.bufferedAmount,
    });
    this.#tunnel = new TunnelServer({ channel: this.#channel, target: options.target });
    this.#connectTimer = setTimeout(
      () => this.#abort(`no connection within ${CONNECT_TIMEOUT_MS / 1000} s`),
      CONNECT_TIMEOUT_MS,
    );
    socket.addEventListener("open", () => void this.#onOpen());
    socket.addEventListener("message", ({ data }) => this.#onMessage(data as string | ArrayBuffer));
    socket.addEventListener("pong" as "open", () => this.#heard());
    socket.addEventListener("error", (event) => {
      this.#trouble ??= describeDialFailure(event as ErrorEvent, options.url);
    });
    socket.addEventListener("close", (event) => this.#onClose(event));
  }

  notify(method: string, params: unknown): void {
    if (this.#helloId !== 0) this.#send({ jsonrpc: "2.0", method, params });
  }

  openStreamsOf(modelId: string): number {
    return this.#tunnel.openStreamsOf(modelId);
  }

  drain(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    if (this.#helloId === 0) resolve();
    else this.#drained = { id: this.#request("agent.drain", {}), resolve };
    return promise;
  }

  close(reason: string): void {
    this.#socket.close(1000, reason);
    this.#end({ message: reason, patient: false });
  }

  #request(method: string, params: unknown): number {
    this.#lastRequestId++;
    this.#send({ jsonrpc: "2.0", id: this.#lastRequestId, method, params });
    return this.#lastRequestId;
  }

  #send(message: RpcMessage): void {
    if (!this.#over && this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  async #onOpen(): Promise<void> {
    clearTimeout(this.#connectTimer);
    this.#openedAtMs = Date.now();
    this.#heard();
    const hello = await this.#options.hello();
    if (this.#over) return;
    this.#helloId = this.#request("agent.hello", hello);
    this.#onAccepted();
    this.#scheduleHeartbeat();
  }

  #scheduleHeartbeat(): void {
    clearTimeout(this.#heartbeat);
    if (!this.#over) this.#heartbeat = setTimeout(() => void this.#beat(), this.#heartbeatIntervalMs);
  }

  async #beat(): Promise<void> {
    const silenceMaxMs = Math.max(SILENCE_FLOOR_MS, HEARTBEATS_MISSED_MAX * this.#heartbeatIntervalMs);
    if (Date.now() - this.#heardAtMs > silenceMaxMs) {
      this.#socket.terminate();
      this.#end({ message: `the gateway has been silent for ${silenceMaxMs / 1000} s`, patient: false });
      return;
    }
    const beat = await this.#options.heartbeat();
    this.#request("agent.heartbeat", beat);
    // A gateway that answers no heartbeat still answers a ping.
    if (!this.#over) this.#socket.ping();
    this.#scheduleHeartbeat();
  }

  #heard(): void {
    this.#heardAtMs = Date.now();
  }

  #onMessage(data: string | ArrayBuffer): void {
    this.#heard();
    if (typeof data !== "string") {
      this.#onFrames(new Uint8Array(data));
      return;
    }
    const message = parseRpcMessage(data);
    if (!message) {
      this.#answerError(null, RpcErrorCode.invalidRequest, "not a JSON-RPC 2.0 object");
    } else if (message.method !== undefined) this.#onRequest(message);
    else if (message.id === this.#helloId) this.#onHelloAnswer(message);
    else if (message.id === this.#drained?.id) this.#drained?.resolve();
    else if (message.error)
      this.#options.log.warn("the gateway refused a message", { why: message.error.message });
  }

  #onFrames(message: Uint8Array): void {
    try {
      this.#tunnel.receive(message);
    } catch (error) {
      this.#abort(`the gateway broke the tunnel protocol: ${describeError(error)}`, 1002);
    }
  }

  #onHelloAnswer(message: RpcMessage): void {
    const { log } = this.#options;
    if (message.error) log.warn("the gateway refused the hello", { why: message.error.message });
    const result = HelloResult.safeParse(message.result ?? {});
    const intervalMs = result.success ? result.data.heartbeat_interval_ms : undefined;
    if (intervalMs === undefined) return;
    this.#heartbeatIntervalMs = intervalMs;
    this.#scheduleHeartbeat();
  }

  #onRequest({ id, method, params }: RpcMessage): void {
    if (method === LEAVING_METHOD) {
      const message = "the gateway's instance stops";
      this.#leave({ message, openForMs: this.#openForMs, patient: false, isLeaving: true });
      return;
    }
    const answerable = id !== undefined;
    const name = method as keyof typeof GATEWAY_METHODS;
    if (!Object.hasOwn(GATEWAY_METHODS, name)) {
      if (answerable) this.#answerError(id, RpcErrorCode.methodNotFound, `Method not found: ${method}`);
      return;
    }
    const parsed = GATEWAY_METHODS[name].safeParse(params);
    if (!parsed.success) {
      const why = describeIssues(parsed.error);
      this.#options.log.warn("refused a request of the gateway", { method: name, why });
      if (answerable) this.#answerError(id, RpcErrorCode.invalidParams, why);
      return;
    }
    void this.#execute(id, () => this.#options.handlers[name](parsed.data as never));
  }

  async #execute(id: RpcMessage["id"], handle: () => unknown): Promise<void> {
    const answerable = id !== undefined;
    try {
      const result = (await handle()) ?? { ok: true };
      if (answerable) this.#send({ jsonrpc: "2.0", id, result });
    } catch (error) {
      if (answerable) this.#answerError(id, RpcErrorCode.application, describeError(error));
    }
  }

  #answerError(id: RpcMessage["id"], code: number, message: string): void {
    this.#send({ jsonrpc: "2.0", id: id ?? null, error: { code, message } });
  }

  /** Gives the connection up from this side, without waiting for a peer that may be gone. */
  #abort(message: string, code = 1001): void {
    this.#trouble ??= message;
    this.#socket.close(code, message.slice(0, 100));
    this.#end({ message, patient: false });
  }

  #onClose({ code, reason }: CloseEvent): void {
    if (code === CloseCode.replaced)
      this.#end({
        message: "another node connected with this token and took over: give each its own",
        patient: true,
      });
    else if (code === CloseCode.deregistered)
      this.#end({
        message: "this node was deregistered: register it again and use the new token",
        patient: true,
      });
    else {
      const refused = this.#trouble === REFUSED_TOKEN;
      const closed = `the gateway closed the connection (${code}${reason ? ` ${reason}` : ""})`;
      this.#end({ message: this.#trouble ?? closed, patient: refused });
    }
  }

  #end(ending: Omit<Ending, "openForMs">): void {
    if (this.#over) return;
    this.#over = true;
    clearTimeout(this.#connectTimer);
    clearTimeout(this.#heartbeat);
    this.#tunnel.close();
    this.#channel.close();
    this.#finish({ ...ending, openForMs: this.#openForMs });
  }

  get #openForMs(): number {
    return this.#openedAtMs === null ? 0 : Date.now() - this.#openedAtMs;
  }
}

const REFUSED_TOKEN =
  "the gateway refused the token (HTTP 401): use the one that agents.register returned, and register again if the node was deregistered";

/** Says what is wrong with the address, the network or the token, and what to do about it. */
export function describeDialFailure({ message, error }: ErrorEvent, url: string): string {
  const { host } = new URL(url);
  const status = /Expected 101 status code: (\d+)/.exec(message)?.[1];
  if (status === "401" || status === "403") return REFUSED_TOKEN;
  if (status === "404") return `${host} has no agent tunnel at this address (HTTP 404): check --gateway`;
  if (status) return `${host} answered HTTP ${status} instead of opening the tunnel`;
  switch (errorCode(error)) {
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return `the gateway's host ${host} is not known (DNS): check --gateway`;
    case "ECONNREFUSED":
      return `nothing listens at ${host} (connection refused): is the gateway running?`;
    case "EPROTO":
      return `${host} does not speak TLS here: use ws:// instead of wss://, or the TLS port`;
    default:
      return `the gateway at ${host} cannot be reached: ${message.replace(/^WebSocket connection to '[^']*' failed: /, "")}`;
  }
}
