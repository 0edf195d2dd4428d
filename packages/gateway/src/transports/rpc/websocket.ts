import type { ServerSocket, SocketHandlers } from "@model-gateway/wire/websocket";
import type { Counter, Revocations } from "../../bus/contract.ts";
import { askedOnce, Gate } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import {
  type Authenticator,
  type Caller,
  type CallSource,
  nameOf,
  type SignedIn,
  SourcedCaller,
} from "../../kernel/context.ts";
import { ServiceError, toServiceError } from "../../kernel/errors.ts";
import type { FailedTries } from "../../kernel/failed-tries.ts";
import type { Ids } from "../../kernel/ids.ts";
import { decodeUtf8 } from "../../kernel/json.ts";
import { LARGE_BODY_BYTES } from "../../kernel/turns.ts";
import { encodeFailure } from "./codec.ts";
import { RPC_BODY_BYTES_MAX } from "./http.ts";
import { type RpcRunner, socketOnly, strangerRefusal } from "./runner.ts";

const ANONYMOUS_IDLE_MS = 10_000;
const PROBE_METHOD = "system.probe";
const REFRESH_METHOD = "auth.refresh";
const IN_FLIGHT_MAX = 64;
const WAITING_MAX = 1_000;
const BYTES_MAX = (IN_FLIGHT_MAX + 4) * RPC_BODY_BYTES_MAX;
const ANONYMOUS_BYTES_MAX = RPC_BODY_BYTES_MAX;
/** While the peer has more than this to read, calls wait. */
const UNREAD_BYTES_MAX = 1024 * 1024;
/** A peer that leaves this much unread is disconnected. */
export const SEND_BUFFER_BYTES_MAX = 4 * 1024 * 1024;

interface RpcSocketData extends CallSource {
  token: string | null;
  /** Null for strangers and the admin token. */
  userId: string | null;
  sessionId: string | undefined;
  anonymous: boolean;
  calls: Gate;
  heldBytes: number;
  unread: (() => void)[];
  cancelIdle: () => void;
  closing: boolean;
}

interface RpcWebSocketOptions {
  runner: RpcRunner;
  authenticator: Authenticator;
  counter: Counter;
  tries: FailedTries;
  revocations: Revocations;
  clock: Clock;
  ids: Ids;
}

type RpcSocket = ServerSocket<RpcSocketData>;

/** Other public methods, such as those of invitations and links, are for HTTP only. */
const ANONYMOUS_METHODS: ReadonlySet<string> = new Set([
  "auth.register",
  "auth.login",
  "auth.refresh",
  "providers.list",
  "system.status",
]);

const ANONYMOUS_BUSY = new ServiceError(
  "app_error",
  `Calls of more than ${ANONYMOUS_BYTES_MAX} bytes are under way on this socket; wait for answers, or sign in`,
);
const BUSY = new ServiceError(
  "app_error",
  `More than ${IN_FLIGHT_MAX + WAITING_MAX} calls, or ${BYTES_MAX} bytes of them, are under way on this socket; wait for answers`,
);

async function whenRead(socket: RpcSocket): Promise<void> {
  const { data } = socket;
  while (!data.closing && socket.getBufferedAmount() > UNREAD_BYTES_MAX)
    await new Promise<void>((resolve) => data.unread.push(resolve));
}

interface RefreshedSession {
  access_token: string;
  user: { id: string };
}

/** `GET /api/rpc` as a WebSocket: each message is a JSON-RPC text. Notifications are not sent here. */
export class RpcWebSocket implements SocketHandlers<RpcSocketData> {
  readonly #open = new Set<RpcSocket>();

  constructor(readonly options: RpcWebSocketOptions) {
    options.revocations.onChange((id) => this.#recheck(id));
  }

  /** The data of a new socket, which is anonymous if the token does not verify. Too many wrong tokens are refused. */
  async admit(token: string | null, { ip, userAgent, isLocal }: CallSource): Promise<RpcSocketData> {
    const { authenticator, tries } = this.options;
    const { actor, adminToken, sessionId, isGuess } = await authenticator.identify(token);
    const refusal = isGuess ? tries.failed(ip) : null;
    if (refusal) throw refusal;
    return {
      token,
      userId: actor?.userId ?? null,
      sessionId,
      ip,
      userAgent,
      isLocal,
      anonymous: actor === null && !adminToken,
      calls: new Gate(IN_FLIGHT_MAX, WAITING_MAX, () => {
        throw BUSY;
      }),
      heldBytes: 0,
      unread: [],
      cancelIdle: () => {},
      closing: false,
    };
  }

  open(socket: RpcSocket): void {
    if (socket.data.userId !== null) this.#open.add(socket);
    this.#restartIdle(socket);
  }

  close(socket: RpcSocket): void {
    this.#open.delete(socket);
    socket.data.closing = true;
    socket.data.cancelIdle();
    this.drain(socket);
  }

  /** Closes sockets whose session or account has ended: those of a user, or for null all. */
  async #recheck(id: string | null): Promise<void> {
    const isInForce = askedOnce(nameOf, (holder: SignedIn) => this.options.authenticator.isInForce(holder));
    for (const socket of [...this.#open]) {
      const { userId, sessionId } = socket.data;
      if (userId === null || (id !== null && userId !== id)) continue;
      if (await isInForce({ userId, sessionId })) continue;
      socket.data.closing = true;
      socket.close(1008, "signed out, or the account was disabled");
    }
  }

  #restartIdle(socket: RpcSocket): void {
    const { data } = socket;
    if (!data.anonymous) return;
    data.cancelIdle();
    data.cancelIdle = this.options.clock.after(ANONYMOUS_IDLE_MS, () =>
      socket.close(1000, "idle for 10 seconds"),
    );
  }

  async message(socket: RpcSocket, message: string | Buffer): Promise<void> {
    const { data } = socket;
    if (data.closing) return;
    this.#restartIdle(socket);
    const [bytesMax, refusal] = data.anonymous ? [ANONYMOUS_BYTES_MAX, ANONYMOUS_BUSY] : [BYTES_MAX, BUSY];
    if (data.heldBytes > 0 && data.heldBytes + message.length > bytesMax)
      return this.#answer(socket, message, refusal);
    data.heldBytes += message.length;
    const called = data.calls.run(async () => {
      await whenRead(socket);
      if (!data.closing) await this.#answer(socket, message);
    });
    try {
      await called;
    } catch (error) {
      if (error !== BUSY) throw error;
      await this.#answer(socket, message, BUSY);
    } finally {
      data.heldBytes -= message.length;
    }
  }

  drain({ data }: RpcSocket): void {
    for (const resume of data.unread.splice(0)) resume();
  }

  /** Runs the requests of a message, or answers each with `refusal`. */
  async #answer(socket: RpcSocket, message: string | Buffer, refusal?: ServiceError): Promise<void> {
    const { data } = socket;
    const { runner, authenticator, counter, ids } = this.options;
    const requestId = ids.uuid();
    let probed = false;
    let json: string;
    try {
      const text = typeof message === "string" ? message : decodeUtf8(message);
      if (text.length > RPC_BODY_BYTES_MAX)
        throw new ServiceError("body_too_large", "The message is larger than 1 MiB");
      // Checked for every message: the account's rights may have changed, or the token may have expired.
      const identity = await authenticator.identify(data.token);
      data.sessionId = identity.sessionId ?? data.sessionId;
      const caller = new SourcedCaller(identity, data);
      const isStranger = !caller.actor && !caller.adminToken;
      const tooMany = isStranger ? await strangerRefusal(counter, data.ip) : null;
      if (tooMany && text.length > LARGE_BODY_BYTES) throw tooMany;
      const guard = (method: string) => {
        probed ||= method === PROBE_METHOD;
        return refusal ?? tooMany ?? this.#refusal(method, caller);
      };
      const onResult = (method: string, result: unknown) => {
        if (method !== REFRESH_METHOD) return;
        // The new token replaces the one that the socket was opened with, so that it can stay open.
        const { access_token, user } = result as RefreshedSession;
        if (data.userId === user.id) data.token = access_token;
      };
      json = (await runner.run(text, { caller, requestId, guard, onResult })).join("");
    } catch (error) {
      const failure = toServiceError(error);
      if (failure.kind === "internal")
        runner.options.log.error("answering a WebSocket message failed", { request_id: requestId, error });
      json = encodeFailure(failure);
    }
    this.#send(socket, json);
    if (probed && data.anonymous) {
      data.closing = true;
      socket.close(1000, "probe answered");
    }
  }

  /** Anonymous sockets may call the contract's public methods, and the probe, which others may not. */
  #refusal(method: string, { actor, adminToken }: Caller): ServiceError | null {
    const { registry } = this.options.runner.options;
    if (actor || adminToken) return socketOnly(registry, method);
    if (ANONYMOUS_METHODS.has(method) || registry.methods.get(method)?.auth === "anonymous_socket")
      return null;
    return new ServiceError("auth_required", "authentication required");
  }

  #send(socket: RpcSocket, json: string): void {
    if (socket.getBufferedAmount() > SEND_BUFFER_BYTES_MAX) {
      socket.close(1013, "answers are not being read");
      return;
    }
    socket.sendText(json);
  }
}
