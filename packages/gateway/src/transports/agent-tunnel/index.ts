import {
  AGENT_METHODS,
  type HeartbeatParams,
  type HelloParams,
  type HelloResult,
  type ProgressParams,
  parseRpcMessage,
  RpcErrorCode,
  type RpcMessage,
  TEXT_MESSAGE_BYTES_MAX,
  TUNNEL_PATH,
} from "@model-gateway/protocol/agent.ts";
import { FrameError, MESSAGE_BYTES_MAX } from "@model-gateway/protocol/tunnel/frames.ts";
import type { Reply } from "@model-gateway/wire/http";
import { bearerOf, type HttpRequest } from "@model-gateway/wire/http";
import type { ServerSocket } from "@model-gateway/wire/websocket";
import type { Clock } from "../../kernel/clock.ts";
import type { CallSource } from "../../kernel/context.ts";
import { ServiceError, toRestReply, toServiceError } from "../../kernel/errors.ts";
import type { FailedTries } from "../../kernel/failed-tries.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import { describeIssues } from "../../kernel/validate.ts";
import type { SocketTransport } from "../server.ts";
import { AgentConnection } from "./connection.ts";

const TOKEN_CHARS_MAX = 256;
/** Far more than hundreds of models report at once; a node that sends more is broken. */
const TEXT_MESSAGES_PER_WINDOW_MAX = 2_000;
const WINDOW_MS = 10_000;

const REFUSED =
  "This address is for agent nodes: send the token of agents.register as `Authorization: Bearer` or `?token=`";

const PROTOCOL_ERROR = 1002;
const POLICY_VIOLATION = 1008;
const TOO_BIG = 1009;

interface AgentDesk<Identity> {
  authenticate(token: string): Promise<Identity | null>;
  connect(identity: Identity, connection: AgentConnection): AgentSession;
}

interface AgentSession {
  hello(params: HelloParams): HelloResult;
  heartbeat(params: HeartbeatParams): void;
  progress(params: ProgressParams): void;
  /** Never rejects. */
  drain(): Promise<void>;
  closed(): void;
}

interface SocketData<Identity> {
  identity: Identity;
  connection: AgentConnection | null;
  session: AgentSession | null;
  greeted: boolean;
  windowEndsMs: number;
  textMessages: number;
}

type TunnelSocket<Identity> = ServerSocket<SocketData<Identity>>;

interface AgentTunnelOptions<Identity> {
  desk: AgentDesk<Identity>;
  /** For nodes only: one that keeps dialling with an old token must not lock out people at its address. */
  tries: FailedTries;
  clock: Clock;
  ids: Ids;
  log: Log;
}

/** `GET /ws/agent`: the WebSockets of nodes. A bad token is refused before the upgrade. */
export class AgentTunnel<Identity> implements SocketTransport<SocketData<Identity>> {
  readonly path = TUNNEL_PATH;
  /** Answers in a tunnel may finish first. */
  readonly closesItself = true;

  constructor(readonly options: AgentTunnelOptions<Identity>) {}

  async admit(
    request: HttpRequest,
    query: URLSearchParams,
    { ip }: CallSource,
  ): Promise<SocketData<Identity> | Reply> {
    try {
      const identity = await this.#identify(bearerOf(request) ?? query.get("token") ?? "", ip);
      return { identity, connection: null, session: null, greeted: false, windowEndsMs: 0, textMessages: 0 };
    } catch (error) {
      return toRestReply(toServiceError(error), this.options.ids.uuid());
    }
  }

  async #identify(token: string, ip: string): Promise<Identity> {
    const { desk, tries } = this.options;
    const identity = token && token.length <= TOKEN_CHARS_MAX ? await desk.authenticate(token) : null;
    if (identity !== null) return identity;
    throw (token && tries.failed(ip)) || new ServiceError("auth_required", REFUSED);
  }

  open(socket: TunnelSocket<Identity>): void {
    const { desk, clock } = this.options;
    const { data } = socket;
    data.connection = new AgentConnection({ socket, clock });
    data.session = desk.connect(data.identity, data.connection);
  }

  message(socket: TunnelSocket<Identity>, message: string | Buffer): void {
    const { connection } = socket.data;
    if (!connection || connection.over) return;
    if (typeof message === "string") this.#onText(socket.data, connection, message);
    else this.#onFrames(socket.data, connection, message);
  }

  drain(socket: TunnelSocket<Identity>): void {
    socket.data.connection?.drained();
  }

  close({ data }: TunnelSocket<Identity>, code: number, reason: string): void {
    data.connection?.ended(reason || `closed with code ${code}`);
    data.session?.closed();
  }

  #onFrames(data: SocketData<Identity>, connection: AgentConnection, bytes: Uint8Array): void {
    if (bytes.byteLength > MESSAGE_BYTES_MAX) {
      this.#end(data, TOO_BIG, `a message of ${bytes.byteLength} bytes`);
      return;
    }
    try {
      connection.tunnel.receive(bytes);
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.#end(data, PROTOCOL_ERROR, error.message);
    }
  }

  #onText(data: SocketData<Identity>, connection: AgentConnection, text: string): void {
    if (text.length > TEXT_MESSAGE_BYTES_MAX) {
      this.#end(data, TOO_BIG, `a message of ${text.length} characters`);
      return;
    }
    if (this.#floods(data)) {
      this.#end(data, POLICY_VIOLATION, "too many messages");
      return;
    }
    const message = parseRpcMessage(text);
    if (!message) this.#end(data, PROTOCOL_ERROR, "not a JSON-RPC 2.0 message");
    else if (message.method === undefined) connection.answered(message);
    else this.#onCall(data, connection, message);
  }

  #onCall(data: SocketData<Identity>, connection: AgentConnection, message: RpcMessage): void {
    const { id, method = "", params } = message;
    const refuse = (code: number, why: string) => {
      this.options.log.warn("refused a node's message", { method, why });
      if (id !== undefined) connection.send({ jsonrpc: "2.0", id, error: { code, message: why } });
      // Later messages can be corrected by the next heartbeat, but not a hello.
      if (!data.greeted) this.#end(data, PROTOCOL_ERROR, why);
    };
    if (!Object.hasOwn(AGENT_METHODS, method)) {
      refuse(RpcErrorCode.methodNotFound, `method not found: ${method}`);
      return;
    }
    const name = method as keyof typeof AGENT_METHODS;
    if (!data.greeted && name !== "agent.hello") {
      refuse(RpcErrorCode.invalidRequest, "agent.hello has to come first");
      return;
    }
    const parsed = AGENT_METHODS[name].safeParse(params);
    if (!parsed.success) {
      refuse(RpcErrorCode.invalidParams, describeIssues(parsed.error));
      return;
    }
    if (name === "agent.hello")
      connection.tunnel.streamsMax = (parsed.data as HelloParams).streams_max ?? Number.POSITIVE_INFINITY;
    const answer = (result: unknown) => {
      if (id !== undefined) connection.send({ jsonrpc: "2.0", id, result });
    };
    if (name === "agent.drain") void data.session!.drain().then(() => answer({ ok: true }));
    else answer(this.#hand(data, name, parsed.data));
  }

  #hand(data: SocketData<Identity>, name: keyof typeof AGENT_METHODS, params: unknown): unknown {
    const session = data.session!;
    if (name === "agent.hello") {
      data.greeted = true;
      return session.hello(params as HelloParams);
    }
    if (name === "agent.heartbeat") session.heartbeat(params as HeartbeatParams);
    else if (name === "agent.progress") session.progress(params as ProgressParams);
    return { ok: true };
  }

  #floods(data: SocketData<Identity>): boolean {
    const now = this.options.clock.now();
    if (now >= data.windowEndsMs) {
      data.windowEndsMs = now + WINDOW_MS;
      data.textMessages = 0;
    }
    data.textMessages++;
    return data.textMessages > TEXT_MESSAGES_PER_WINDOW_MAX;
  }

  #end({ connection, session }: SocketData<Identity>, code: number, reason: string): void {
    this.options.log.warn("closing a node's connection", { code, reason });
    connection?.close(code, reason);
    session?.closed();
  }
}
