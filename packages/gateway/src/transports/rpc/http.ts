import { bearerOf, type HttpRequest, jsonReply, type Reply } from "@model-gateway/wire/http";
import type { EventHub } from "../../bus/contract.ts";
import { type Authenticator, type CallSource, callerFrom, type Identity } from "../../kernel/context.ts";
import { type ErrorName, type ServiceError, toServiceError } from "../../kernel/errors.ts";
import { decodeUtf8 } from "../../kernel/json.ts";
import { encodeFailure } from "./codec.ts";
import { type RpcRunner, socketOnly } from "./runner.ts";

export const RPC_BODY_BYTES_MAX = 1024 * 1024;
const SESSION_ID_LENGTH_MAX = 64;

interface RpcHttpOptions {
  runner: RpcRunner;
  authenticator: Authenticator;
  events: EventHub;
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
export function createRpcHttp({ runner, authenticator, events }: RpcHttpOptions) {
  const guard = (method: string) => socketOnly(runner.options.registry, method);

  const unreadable = (error: unknown, requestId: string): Reply => {
    const failure = toServiceError(error);
    return jsonReply(encodeFailure(failure), requestId, STATUS[failure.kind] ?? 200);
  };

  function run(
    request: HttpRequest,
    body: Buffer,
    identity: Identity,
    { requestId, source, refusal: refusalOf }: RpcHttpCall,
  ): Reply | Promise<Reply> {
    const refusal = identity.actor || identity.adminToken ? null : refusalOf(request);
    if (refusal) return unreadable(refusal, requestId);
    let text: string;
    try {
      text = decodeUtf8(body);
    } catch (error) {
      return unreadable(error, requestId);
    }
    const sessionId = request.header("x-session-id");
    const onResponse =
      sessionId && sessionId.length <= SESSION_ID_LENGTH_MAX
        ? (json: string) => events.push(sessionId, json)
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
