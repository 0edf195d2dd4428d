import type { EventHub } from "../../bus/contract.ts";
import { type Authenticator, callerFrom } from "../../kernel/context.ts";
import { toServiceError } from "../../kernel/errors.ts";
import { bearerOf, readBody } from "../../kernel/http.ts";
import { decodeUtf8 } from "../../kernel/json.ts";
import { encodeFailure } from "./codec.ts";
import { type RpcRunner, socketOnly } from "./runner.ts";

export const RPC_BODY_BYTES_MAX = 1024 * 1024;
const SESSION_ID_LENGTH_MAX = 64;

export interface RpcHttpOptions {
  runner: RpcRunner;
  authenticator: Authenticator;
  events: EventHub;
}

const answer = (json: string, requestId: string, status = 200): Response =>
  new Response(json, {
    status,
    headers: { "content-type": "application/json", "x-request-id": requestId },
  });

/** `POST /api/rpc`. Answers are HTTP 200, apart from a body that is too large. */
export function createRpcHttp({ runner, authenticator, events }: RpcHttpOptions) {
  const guard = (method: string) => socketOnly(runner.options.registry, method);
  return async (
    request: Request,
    { requestId, source }: { requestId: string; source: { readonly ip: string } },
  ): Promise<Response> => {
    let text: string;
    try {
      text = decodeUtf8(await readBody(request, RPC_BODY_BYTES_MAX));
    } catch (error) {
      const failure = toServiceError(error);
      return answer(encodeFailure(failure), requestId, failure.kind === "body_too_large" ? 413 : 200);
    }
    const identifying = authenticator.identify(bearerOf(request));
    const identity = identifying instanceof Promise ? await identifying : identifying;
    const caller = callerFrom(identity, source);
    const sessionId = request.headers.get("x-session-id");
    const onResponse =
      sessionId && sessionId.length <= SESSION_ID_LENGTH_MAX
        ? (json: string) => events.push(sessionId, json)
        : undefined;
    const running = runner.run(text, { caller, requestId, guard, onResponse });
    return answer(typeof running === "string" ? running : await running, requestId);
  };
}
