import { bearerOf, type HttpRequest, jsonReply, type Reply } from "@model-gateway/wire/http";
import { type Counter, type EventHub, SESSION_ID_LENGTH_MAX } from "../../bus/contract.ts";
import { type Authenticator, type CallSource, type Identity, SourcedCaller } from "../../kernel/context.ts";
import { type ErrorName, type ServiceError, toServiceError } from "../../kernel/errors.ts";
import type { FailedTries } from "../../kernel/failed-tries.ts";
import { decodeUtf8 } from "../../kernel/json.ts";
import { inSteps, LARGE_BODY_BYTES } from "../../kernel/turns.ts";
import { encodeFailure } from "./codec.ts";
import { type RpcRunner, socketOnly, strangerRefusal } from "./runner.ts";

export const RPC_BODY_BYTES_MAX = 1024 * 1024;

interface RpcHttpOptions {
  runner: RpcRunner;
  authenticator: Authenticator;
  events: EventHub;
  counter: Counter;
  tries: FailedTries;
}

interface RpcHttpCall {
  requestId: string;
  source: CallSource;
  refusal(request: HttpRequest): ServiceError | null;
}

/** All other errors are answered with HTTP 200. */
const STATUS: { readonly [Kind in ErrorName]?: number } = { body_too_large: 413, forbidden: 403 };

export function createRpcHttp({ runner, authenticator, events, counter, tries }: RpcHttpOptions) {
  async function run(request: HttpRequest, call: RpcHttpCall): Promise<Reply> {
    const { requestId, source } = call;
    const [body, identity] = await Promise.all([
      request.body(RPC_BODY_BYTES_MAX),
      authenticator.identify(bearerOf(request)),
    ]);
    const refusal = await refusalOf(request, identity, call);
    // Refusing a flood must stay cheap: large bodies are not parsed for their ids.
    if (refusal && body.length > LARGE_BODY_BYTES) throw refusal;
    const guard = (method: string) => refusal ?? socketOnly(runner.options.registry, method);
    const text = decodeUtf8(body);
    const sessionId = request.header("x-session-id");
    const onResponse =
      !refusal && sessionId && sessionId.length <= SESSION_ID_LENGTH_MAX
        ? (json: string) => events.pushAs(identity.actor?.userId ?? null, sessionId, json)
        : undefined;
    const options = { caller: new SourcedCaller(identity, source), requestId, guard, onResponse };
    const answers = await runner.run(text, options);
    if (answers.length === 1) return jsonReply(answers[0]!, requestId);
    // Encoding megabytes at once would block the event loop.
    return jsonReply(await inSteps(answers, (json) => Buffer.from(json)), requestId);
  }

  /** The answer to every request of the body; null for callers who may call. */
  async function refusalOf(
    request: HttpRequest,
    identity: Identity,
    { source: { ip }, refusal }: RpcHttpCall,
  ): Promise<ServiceError | null> {
    if (identity.actor || identity.adminToken) {
      request.vouch();
      return null;
    }
    const misplaced = refusal(request);
    if (misplaced) throw misplaced;
    return (identity.isGuess && tries.failed(ip)) || strangerRefusal(counter, ip);
  }

  return async (request: HttpRequest, call: RpcHttpCall): Promise<Reply> => {
    try {
      return await run(request, call);
    } catch (error) {
      const failure = toServiceError(error);
      return jsonReply(encodeFailure(failure), call.requestId, STATUS[failure.kind] ?? 200);
    }
  };
}
