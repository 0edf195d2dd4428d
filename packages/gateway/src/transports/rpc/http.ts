import { bearerOf, type HttpRequest, jsonReply, type Reply } from "@model-gateway/wire/http";
import type { EventHub, RateLimiter } from "../../bus/contract.ts";
import { type Authenticator, type CallSource, callerFrom, type Identity } from "../../kernel/context.ts";
import { type ErrorName, type ServiceError, toServiceError } from "../../kernel/errors.ts";
import type { FailedTries } from "../../kernel/failed-tries.ts";
import { decodeUtf8 } from "../../kernel/json.ts";
import { LARGE_BODY_BYTES } from "../../kernel/turns.ts";
import { whenKnown } from "../../kernel/when-known.ts";
import { strangerRefusal } from "./anonymous.ts";
import { encodeFailure } from "./codec.ts";
import { type RpcRunner, socketOnly } from "./runner.ts";

export const RPC_BODY_BYTES_MAX = 1024 * 1024;
const SESSION_ID_LENGTH_MAX = 64;

interface RpcHttpOptions {
  runner: RpcRunner;
  authenticator: Authenticator;
  events: EventHub;
  limiter: RateLimiter;
  tries: FailedTries;
}

interface RpcHttpCall {
  requestId: string;
  source: CallSource;
  /** Of a call without credentials. */
  refusal(request: HttpRequest): ServiceError | null;
}

/** The only refusals that are not HTTP 200. */
const STATUS: { readonly [Kind in ErrorName]?: number } = { body_too_large: 413, forbidden: 403 };

/** `POST /api/rpc`. At once where nothing is waited for. */
export function createRpcHttp({ runner, authenticator, events, limiter, tries }: RpcHttpOptions) {
  const unreadable = (error: unknown, requestId: string): Reply => {
    const failure = toServiceError(error);
    return jsonReply(encodeFailure(failure), requestId, STATUS[failure.kind] ?? 200);
  };

  function run(
    request: HttpRequest,
    body: Buffer,
    identity: Identity,
    call: RpcHttpCall,
  ): Reply | Promise<Reply> {
    if (identity.actor || identity.adminToken) {
      request.vouch();
      return answer(request, body, identity, call);
    }
    const misplaced = call.refusal(request);
    if (misplaced) return unreadable(misplaced, call.requestId);
    const { ip } = call.source;
    const refusal = (identity.isGuess && tries.failed(ip)) || strangerRefusal(limiter, ip);
    return whenKnown(refusal, (known) => answer(request, body, identity, call, known));
  }

  /** Runs what the body asks for; with `refusal` each of its requests is answered with that instead. */
  function answer(
    request: HttpRequest,
    body: Buffer,
    identity: Identity,
    { requestId, source }: RpcHttpCall,
    refusal: ServiceError | null = null,
  ): Reply | Promise<Reply> {
    // A flood must stay cheap to refuse: the ids of a large body are not worth reading it.
    if (refusal && body.length > LARGE_BODY_BYTES) return unreadable(refusal, requestId);
    const guard = (method: string) => refusal ?? socketOnly(runner.options.registry, method);
    let text: string;
    try {
      text = decodeUtf8(body);
    } catch (error) {
      return unreadable(error, requestId);
    }
    const sessionId = request.header("x-session-id");
    const onResponse =
      !refusal && sessionId && sessionId.length <= SESSION_ID_LENGTH_MAX
        ? (json: string) => events.pushAs(identity.actor?.userId ?? null, sessionId, json)
        : undefined;
    const running = runner.run(text, { caller: callerFrom(identity, source), requestId, guard, onResponse });
    return typeof running === "string"
      ? jsonReply(running, requestId)
      : running.then((json) => jsonReply(json, requestId));
  }

  return (request: HttpRequest, call: RpcHttpCall): Reply | Promise<Reply> => {
    try {
      const body = request.body(RPC_BODY_BYTES_MAX);
      const identity = authenticator.identify(bearerOf(request));
      if (!(body instanceof Promise || identity instanceof Promise))
        return run(request, body, identity, call);
      return Promise.all([body, identity]).then(
        ([bytes, known]) => run(request, bytes, known, call),
        (error) => unreadable(error, call.requestId),
      );
    } catch (error) {
      return unreadable(error, call.requestId);
    }
  };
}
