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

/** A larger call is read, checked and carried out in a turn each: what is small to read may be dear to check. */
const LARGE_CALL_CHARS = 64 * 1024;
/** A batch whose answers are larger than this has its other elements refused. */
const BATCH_ANSWER_CHARS_MAX = 8 * 1024 * 1024;

const refused = ({ idJson }: RpcRequest): string =>
  encodeFailure(
    new ServiceError(
      "app_error",
      "The answers of this batch are too large together; send this call by itself",
    ),
    idJson,
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
  /** Refuses a request before it is dispatched, e.g. on an anonymous WebSocket. */
  guard?: (method: string) => ServiceError | null;
  onResult?: (method: string, result: unknown) => void;
  onResponse?: (json: string) => void;
}

/** The refusal of a method that only an anonymous WebSocket has; elsewhere it does not exist. */
export const socketOnly = (registry: Registry, method: string): ServiceError | null =>
  registry.methods.get(method)?.auth === "anonymous_socket"
    ? new ServiceError("method_not_found", `Method not found: ${method}`)
    : null;

/** The part of the JSON-RPC plane that HTTP and WebSocket share: text in, and the pieces of a text out. */
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
    // Element by element, as the contract says: a later element may rely on an earlier one.
    const responses: string[] = [];
    let chars = 0;
    for (const request of body.requests) {
      if (responses.length > 0) await nextTurn();
      const json =
        chars > BATCH_ANSWER_CHARS_MAX ? refused(request) : await this.#one(request, call, isLarge);
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
    // Calls of strangers ask nothing of a model, and could crowd out the records of everyone else.
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
      if (record) noteRefusal(record, error, caller);
      return this.#failed(error, request, requestId);
    }
  }

  #failed(error: unknown, { method, idJson }: { method: string; idJson: string }, requestId: string): string {
    const { registry, log, calls } = this.options;
    const failure = toServiceError(error);
    const isKnown = registry.methods.has(method);
    calls.add(1, { method: isKnown ? method : "unknown", outcome: failure.kind });
    if (isOurs(failure)) log.error("method failed", { request_id: requestId, method, error });
    return encodeFailure(failure, idJson);
  }
}

function noteRefusal(record: RequestRecord, error: unknown, { ip }: Caller): void {
  record.addDetails({ clientIp: ip });
  record.refused(toServiceError(error));
}
