import { type Admin, createAdmin } from "./admin.ts";
import { ConnectionError, RPC_CODE, RpcError } from "./errors.ts";
import { type ChatStream, type EventsOptions, type Notification, sessionEvents } from "./events.ts";
import { METHOD_AUTH, type Methods } from "./methods.gen.ts";
import { callRoute, createRest, type Rest, sendRest } from "./rest.ts";
import { connecting, type Fetch, type RpcReply, rpcOverHttp } from "./rpc.ts";
import { RpcSocket, type SocketConstructor } from "./rpc-socket.ts";
import { memoryTokens, type Session, SessionKeeper, type TokenStore } from "./session.ts";

const CALL_TIMEOUT_MS = 60_000;

export interface ClientOptions {
  /** Address of the service, e.g. `https://models.example.org`. */
  baseUrl: string;
  /** Where the session is kept; in memory unless given. */
  tokens?: TokenStore;
  /** Carries the JSON-RPC calls; default `http`. */
  transport?: "http" | "websocket";
  /** API key of the `/v1` surface. */
  apiKey?: string | (() => string | null);
  /** Admin token of `/api/admin` and of the methods that want it. */
  adminToken?: string | (() => string | null);
  fetch?: Fetch;
  /** Needed for the WebSocket transport where the runtime has none. */
  WebSocket?: SocketConstructor;
  callTimeoutMs?: number;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** Also pushes the answer onto this notification session. */
  sessionId?: string;
}

export type MethodName = keyof Methods;
export type Params<M extends MethodName> = Methods[M]["params"];
export type Result<M extends MethodName> = Methods[M]["result"];
/** Params may be left out where every field of them may be. */
export type CallArguments<M extends MethodName> =
  Record<string, never> extends Params<M>
    ? [params?: Params<M>, options?: CallOptions]
    : [params: Params<M>, options?: CallOptions];

export interface Client {
  readonly baseUrl: string;
  /** Calls a method of the management plane. Throws RpcError or ConnectionError. */
  call<M extends MethodName>(method: M, ...rest: CallArguments<M>): Promise<Result<M>>;
  /** A method that this version's types do not know, e.g. of a newer service. */
  callUnknown(method: string, params?: Record<string, unknown>, options?: CallOptions): Promise<unknown>;
  /** Notifications of a session, reconnecting until the loop is left or the signal fires. */
  events(sessionId: string, options?: EventsOptions): AsyncGenerator<Notification, void, undefined>;
  /**
   * `chat.send` and its answer as it arrives; throws when the answer fails or breaks off. Leaving the loop early, or the
   * signal, stops the answer.
   */
  chat(
    request: Record<string, unknown> & { model: string; messages: unknown[] },
    options?: CallOptions &
      Pick<EventsOptions, "onEventId"> & {
        onStart?: (started: { stream_id: string; memory?: unknown }) => void;
      },
  ): AsyncGenerator<ChatStream, void, undefined>;
  /** The clip of one of the signed-in person's video jobs that was made on own GPUs. */
  videoClip(jobId: string): Promise<Blob>;
  readonly rest: Rest;
  readonly admin: Admin;
  readonly session: Session | null;
  /** Reads the stored session, once. */
  ready(): Promise<Session | null>;
  onSession(listener: (session: Session | null) => void): () => void;
  signIn(params: Params<"auth.login">): Promise<Session>;
  signUp(params: Params<"auth.register">): Promise<Session>;
  /** Signs in with what a call that begins a session answered, such as auth.link.accept. */
  accept(tokens: Result<"auth.login">): Promise<Session>;
  /**
   * Begins a sign-in with the provider, or links the signed-in account to it. Returns the provider's page; the cookie
   * that came with it must be there when the sign-in is finished.
   */
  beginSignIn(options?: {
    returnTo?: string;
    setupToken?: string;
    invitation?: string;
    link?: boolean;
  }): Promise<string>;
  /** Ends it with the query of the page that the provider sent the browser back to; returns where to go on. */
  finishSignIn(query: string): Promise<{ returnTo: string; linked: boolean }>;
  /** Changes the signed-in person's name. */
  rename(name: string): Promise<void>;
  signOut(): Promise<void>;
  close(): void;
}

const asFunction = (value: string | (() => string | null) | undefined) =>
  typeof value === "function" ? value : () => value ?? null;

export function createClient(options: ClientOptions): Client {
  const baseUrl = options.baseUrl.replace(/\/+$/, "");
  const fetch = connecting(options.fetch ?? ((url, init) => globalThis.fetch(url, init)));
  const apiKey = asFunction(options.apiKey);
  const adminToken = asFunction(options.adminToken);
  const callTimeoutMs = options.callTimeoutMs ?? CALL_TIMEOUT_MS;
  let nextId = 1;
  let socket: RpcSocket | null = null;

  function theSocket(): RpcSocket {
    const Socket = options.WebSocket ?? (globalThis.WebSocket as unknown as SocketConstructor | undefined);
    if (!Socket) throw new Error("this runtime has no WebSocket; hand one in as options.WebSocket");
    socket ??= new RpcSocket(`${baseUrl.replace(/^http/, "ws")}/api/rpc`, Socket);
    return socket;
  }

  function send(
    method: string,
    params: unknown,
    { token, signal, sessionId }: CallOptions & { token: string | null },
  ): Promise<RpcReply> {
    const request = { jsonrpc: "2.0" as const, id: nextId++, method, params };
    const timeout = AbortSignal.timeout(callTimeoutMs);
    const either = signal ? AbortSignal.any([signal, timeout]) : timeout;
    // The admin token and the session header are HTTP's; a socket belongs to one signed-in person.
    const overSocket =
      options.transport === "websocket" &&
      token !== null &&
      token !== adminToken() &&
      sessionId === undefined;
    if (overSocket) return Promise.race([theSocket().call(request, token), rejectedBy(either)]);
    return rpcOverHttp(request, { fetch, url: `${baseUrl}/api/rpc`, token, signal: either, sessionId });
  }

  const keeper = new SessionKeeper(options.tokens ?? memoryTokens(), async (refreshToken) => {
    const params = { refresh_token: refreshToken };
    return unwrap(
      "auth.refresh",
      await send("auth.refresh", params, { token: null }),
    ) as Result<"auth.refresh">;
  });

  async function callUnknown(
    method: string,
    params: Record<string, unknown> = {},
    callOptions: CallOptions = {},
  ): Promise<unknown> {
    const credential = credentialOf(method);
    if (credential === "public")
      return unwrap(method, await send(method, params, { token: null, ...callOptions }));
    if (credential === "admin_token")
      return unwrap(method, await send(method, params, { token: adminToken(), ...callOptions }));
    const token = (await keeper.accessToken()) ?? (credential === "jwt_or_admin_token" ? adminToken() : null);
    const reply = await send(method, params, { token, ...callOptions });
    if (reply.error?.code !== RPC_CODE.authentication || token === null || token === adminToken())
      return unwrap(method, reply);
    const renewed = await keeper.renew(token);
    if (!renewed) return unwrap(method, reply);
    return unwrap(method, await send(method, params, { token: renewed.accessToken, ...callOptions }));
  }

  const call: Client["call"] = async (method, ...[params, callOptions]) =>
    (await callUnknown(method, params as Record<string, unknown>, callOptions)) as never;
  const events: Client["events"] = (sessionId, eventsOptions) =>
    sessionEvents({ fetch, baseUrl, token: () => keeper.accessToken() }, sessionId, eventsOptions);

  return {
    baseUrl,
    call,
    callUnknown,
    events,
    async *chat(request, { onStart, onEventId, ...callOptions } = {}) {
      const started = (await callUnknown("chat.send", request, callOptions)) as { stream_id: string };
      onStart?.(started);
      // The answer goes on without a listener: one who does not want the rest says so.
      let isUnwanted = true;
      try {
        for await (const { method, params } of events(started.stream_id, {
          ...callOptions,
          onEventId,
          reconnect: false,
        })) {
          if (method !== "chat.stream") continue;
          if (params.error)
            throw new RpcError(
              "chat.send",
              Number(params.error.code) || RPC_CODE.application,
              params.error.message,
            );
          isUnwanted = !params.done;
          yield params;
          if (params.done) return;
        }
        isUnwanted = callOptions.signal?.aborted === true;
      } catch (error) {
        isUnwanted = false;
        throw error;
      } finally {
        if (isUnwanted) void call("chat.stop", { stream_id: started.stream_id }).catch(() => {});
      }
    },
    async videoClip(jobId) {
      const bearer = await keeper.accessToken();
      return (await sendRest({ fetch, baseUrl }, `/api/video/${jobId}/content`, { bearer })).blob();
    },
    rest: createRest({ fetch, baseUrl, apiKey }),
    admin: createAdmin({ fetch, baseUrl, adminToken }),
    get session() {
      return keeper.current;
    },
    async ready() {
      await keeper.ready();
      return keeper.current;
    },
    onSession: (listener) => keeper.subscribe(listener),
    signIn: async (params) => keeper.accept(await call("auth.login", params)),
    signUp: async (params) => keeper.accept(await call("auth.register", params)),
    accept: (tokens) => keeper.accept(tokens),
    async beginSignIn({ returnTo, setupToken, invitation, link } = {}) {
      const source = { fetch, baseUrl };
      const return_to = returnTo;
      const { url } = link
        ? await callRoute(source, "POST /api/auth/oidc/link", {
            bearer: await keeper.accessToken(),
            body: { return_to },
          })
        : await callRoute(source, "POST /api/auth/oidc/start", {
            bearer: null,
            body: { return_to, setup_token: setupToken, invitation },
          });
      return url;
    },
    async finishSignIn(query) {
      const { session, return_to } = await callRoute({ fetch, baseUrl }, "POST /api/auth/oidc/finish", {
        // Someone who links an account is signed in to it.
        bearer: await keeper.accessToken().catch(() => null),
        body: { query },
      });
      if (session) await keeper.accept(session);
      return { returnTo: return_to, linked: session === null };
    },
    async rename(name) {
      await call("auth.name.set", { name });
      await keeper.rename(name);
    },
    async signOut() {
      const refreshToken = keeper.current?.refreshToken;
      await keeper.clear();
      // Signed out here in any case; tokens that the server does not hear of expire.
      if (refreshToken) await call("auth.logout", { refresh_token: refreshToken }).catch(() => {});
    },
    close() {
      socket?.close();
      keeper.close();
    },
  };
}

/** Methods that the generated table does not know are called as the signed-in person. */
const credentialOf = (method: string): string =>
  (METHOD_AUTH as Record<string, string | undefined>)[method] ?? "jwt";

function rejectedBy(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () =>
      reject(
        signal.reason instanceof Error && signal.reason.name === "TimeoutError"
          ? new ConnectionError("the service did not answer in time")
          : signal.reason,
      ),
    );
  });
}

function unwrap(method: string, reply: RpcReply): unknown {
  if (!reply.error) return reply.result;
  throw new RpcError(method, reply.error.code, reply.error.message, reply.error.data);
}
