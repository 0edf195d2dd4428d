import { networkOf } from "@model-gateway/wire/server";
import type { Counter as RateCounter } from "../../bus/contract.ts";
import type { AuditSink } from "../../kernel/audit.ts";
import type { CallContext, Caller, Rooms } from "../../kernel/context.ts";
import { dispatch } from "../../kernel/dispatch.ts";
import { isOurs, ServiceError, toServiceError } from "../../kernel/errors.ts";
import type { Log } from "../../kernel/log.ts";
import type { Registry } from "../../kernel/registry.ts";
import type { RequestRecord } from "../../kernel/request-record.ts";
import { nextTurn } from "../../kernel/turns.ts";
import type { Counter } from "../../observe/metrics.ts";
import { decodeBody, encodeFailure, encodeResult, type RpcRequest } from "./codec.ts";

/** Larger calls are parsed, checked and run in separate turns: a small text may take long to check. */
const LARGE_CALL_CHARS = 64 * 1024;
/** Once the answers of a batch are larger than this, its other elements are refused. */
const BATCH_ANSWER_CHARS_MAX = 8 * 1024 * 1024;

const TOO_LARGE = new ServiceError(
  "app_error",
  "The answers of this batch are too large together; send this call by itself",
);

interface RpcRunnerOptions {
  registry: Registry;
  rooms: Rooms;
  log: Log;
  calls: Counter;
  audit: AuditSink;
  record(method: string): RequestRecord | null;
}

export interface RpcCallOptions {
  caller: Caller;
  requestId: string;
  guard?: (method: string) => ServiceError | null;
  onResult?: (method: string, result: unknown) => void;
  onResponse?: (json: string) => void;
}

export const socketOnly = (registry: Registry, method: string): ServiceError | null =>
  registry.methods.get(method)?.auth === "anonymous_socket"
    ? new ServiceError("method_not_found", `Method not found: ${method}`)
    : null;

/** Calls per minute of callers who are not signed in, per address or /64 of IPv6. */
export const ANONYMOUS_CALLS_MAX = 1_200;
const WINDOW_MS = 60_000;

export async function strangerRefusal(limiter: RateCounter, ip: string): Promise<ServiceError | null> {
  const limit = { key: `anonymous:${networkOf(ip)}`, max: ANONYMOUS_CALLS_MAX, windowMs: WINDOW_MS };
  const exceeded = await limiter.hit([limit]);
  if (!exceeded) return null;
  const retryAfterSeconds = Math.ceil(exceeded.waitMs / 1000);
  const message = `Too many calls without signing in; try again in ${retryAfterSeconds} s`;
  return new ServiceError("rate_limited", message, { retryAfterSeconds });
}

/** JSON-RPC for HTTP and WebSocket: takes a text, and returns the answer in pieces. */
export class RpcRunner {
  constructor(readonly options: RpcRunnerOptions) {}

  async run(text: string, call: RpcCallOptions): Promise<string[]> {
    let body: ReturnType<typeof decodeBody>;
    try {
      body = decodeBody(text);
    } catch (error) {
      return [this.#respond(encodeFailure(toServiceError(error)), call)];
    }
    const isLarge = text.length > LARGE_CALL_CHARS;
    if (isLarge) await nextTurn();
    // In order, as the contract says: later elements may depend on earlier ones.
    const responses: string[] = [];
    let chars = 0;
    for (const request of body.requests) {
      if (responses.length > 0) await nextTurn();
      const json =
        chars > BATCH_ANSWER_CHARS_MAX
          ? encodeFailure(TOO_LARGE, request.idJson)
          : await this.#one(request, call, isLarge);
      chars += json.length;
      responses.push(this.#respond(json, call));
    }
    return body.batch ? [...responses.map((json, i) => (i === 0 ? "[" : ",") + json), "]"] : responses;
  }

  #respond(json: string, { onResponse }: RpcCallOptions): string {
    onResponse?.(json);
    return json;
  }

  async #one(
    request: RpcRequest,
    { caller, requestId, guard, onResult }: RpcCallOptions,
    isLarge: boolean,
  ): Promise<string> {
    if ("invalid" in request) return encodeFailure(request.invalid, request.idJson);
    const { registry, rooms, log, audit, calls } = this.options;
    const { method, params, idJson } = request;
    // Strangers cannot call models, and could crowd out the records of others.
    const { actor } = caller;
    const record = actor && registry.methods.get(method)?.recorded ? this.options.record(method) : null;
    if (record && actor) record.addDetails({ userId: actor.userId });
    try {
      const refusal = guard?.(method);
      if (refusal) throw refusal;
      const context: CallContext = { caller, requestId, rooms, log, record };
      const result = await dispatch(registry, { method, params, context, audit, isLarge });
      if (record && !record.detached) record.end(200);
      calls.add(1, { method, outcome: "ok" });
      onResult?.(method, result);
      return encodeResult(idJson, result);
    } catch (error) {
      const failure = toServiceError(error);
      record?.addDetails({ clientIp: caller.ip });
      record?.refused(failure);
      const isKnown = registry.methods.has(method);
      calls.add(1, { method: isKnown ? method : "unknown", outcome: failure.kind });
      if (isOurs(failure)) log.error("method failed", { request_id: requestId, method, error });
      return encodeFailure(failure, idJson);
    }
  }
}
