import { type HttpRequest, jsonReply, Reply, replyOf, type StreamedReply } from "@model-gateway/wire/http";
import type { ZodType } from "zod";
import { type AuditSink, auditEntry } from "../../kernel/audit.ts";
import {
  type Actor,
  type Caller,
  type CallSource,
  callerFrom,
  type Principal,
  type Rooms,
} from "../../kernel/context.ts";
import { isOurs, type ServiceError, toRestReply, toServiceError } from "../../kernel/errors.ts";
import { TooManyKeys } from "../../kernel/failed-tries.ts";
import { readJson } from "../../kernel/json.ts";
import type { Log } from "../../kernel/log.ts";
import { CLIENT_CLOSED_STATUS, type RequestRecord } from "../../kernel/request-record.ts";
import { Answer, type AnyRoute, isAudited, Raw, type RouteCall, UPLOAD } from "../../kernel/route.ts";
import { validate } from "../../kernel/validate.ts";
import { whenKnown } from "../../kernel/when-known.ts";
import type { Gate } from "./gate.ts";
import { inflated } from "./inflate.ts";

const NOBODY = { actor: null, adminToken: false };

export interface RouteRunnerOptions {
  gate: Gate;
  /** Opens the record of a request; null when none are kept. */
  record(surface: string, requestId: string): RequestRecord | null;
  rooms: Rooms;
  log: Log;
  /** Largest body with files. */
  uploadBytesMax: number;
  audit: AuditSink;
  /** A request with a known API key failed. */
  keyRefused(principal: Principal, failure: ServiceError): void;
}

/** What one request of a route is known by; the gate and the body are filled in on the way to the handler. */
class RoutedCall implements RouteCall {
  caller: Caller;
  principal: Principal | null = null;
  actor: Actor | null = null;
  query: unknown;
  body: unknown;

  constructor(
    readonly rooms: Rooms,
    readonly log: Log,
    readonly request: HttpRequest,
    readonly requestId: string,
    readonly path: Record<string, string>,
    source: CallSource,
    readonly record: RequestRecord | null,
  ) {
    this.caller = callerFrom(NOBODY, source);
  }
}

interface RoutedRequest {
  request: HttpRequest;
  path: Record<string, string>;
  requestId: string;
  source: CallSource;
}

type Answered = Reply | StreamedReply;

/**
 * The way of every route: who may call it, its body, its handler, its answer, its errors. Not async: each layer of
 * promises costs, and this one is around every request.
 */
export class RouteRunner {
  constructor(readonly options: RouteRunnerOptions) {}

  run(route: AnyRoute, { request, path, requestId, source }: RoutedRequest): Answered | Promise<Answered> {
    const { gate, rooms, log, uploadBytesMax } = this.options;
    const record = route.recorded ? this.options.record(route.path, requestId) : null;
    const call = new RoutedCall(rooms, log, request, requestId, path, source, record);
    try {
      const admitted = gate.admit(route, call);
      const received = admitted
        ? receiveLater(admitted, route, call, uploadBytesMax)
        : receive(route, call, uploadBytesMax);
      const handled = isAudited(route) ? this.#recorded(route, received, call) : received;
      return handled instanceof Promise
        ? this.#later(route, handled, call)
        : answered(answerOf(route, handled, requestId), record);
    } catch (error) {
      return this.#refuse(route, error, call);
    }
  }

  async #later(route: AnyRoute, handling: Promise<unknown>, call: RoutedCall): Promise<Answered> {
    try {
      const answer = answerOf(route, await handling, call.requestId);
      return answered(answer instanceof Promise ? await answer : answer, call.record);
    } catch (error) {
      return this.#refuse(route, error, call);
    }
  }

  async #recorded({ method, path }: AnyRoute, handling: unknown, call: RoutedCall): Promise<unknown> {
    const result = await handling;
    const { caller, requestId, body } = call;
    const value = result instanceof Answer ? result.value : result;
    await this.options.audit.record(
      auditEntry(
        { action: `${method} ${path}`, caller, requestId },
        { ...call.path, ...(body ?? {}) },
        value,
      ),
    );
    return result;
  }

  #refuse(route: AnyRoute, error: unknown, call: RoutedCall): Reply | Promise<Reply> {
    const failure = toServiceError(error);
    const { request, requestId, log, principal } = call;
    if (principal) this.options.keyRefused(principal, failure);
    if (isOurs(failure)) log.error("route failed", { request_id: requestId, path: request.path, error });
    const reply = route.refuse ? route.refuse(error, call) : toRestReply(failure, requestId);
    // Otherwise those without a key could crowd out the records of everyone else.
    if (call.record && !(failure instanceof TooManyKeys))
      noteRefusal(call.record, reply, failure, call.caller);
    return reply;
  }
}

/** A streamed answer goes on; what writes it ends the record. */
function answered<T extends Answered | Promise<Answered>>(answer: T, record: RequestRecord | null): T {
  if (record && answer instanceof Reply) {
    const { status } = answer.head;
    if (status === CLIENT_CLOSED_STATUS) record.left();
    else record.end(status);
  }
  return answer;
}

function noteRefusal(
  record: RequestRecord,
  reply: Reply | Promise<Reply>,
  failure: ServiceError,
  { ip }: Caller,
): void {
  record.also({ clientIp: ip });
  // The API decides about the status.
  if (reply instanceof Reply) record.refused(failure, reply.head.status);
  else record.refused(failure);
}

async function receiveLater(
  admitted: Promise<void>,
  route: AnyRoute,
  call: RoutedCall,
  uploadBytesMax: number,
): Promise<unknown> {
  await admitted;
  return receive(route, call, uploadBytesMax);
}

/** Reads what the route declares and hands it to the handler. */
function receive(route: AnyRoute, call: RoutedCall, uploadBytesMax: number): unknown {
  const { request } = call;
  if (route.query)
    call.query = validate(
      route.query,
      Object.fromEntries(new URLSearchParams(request.search)),
      route.invalid,
    );
  if (!route.body) return route.handler(call);
  const bytesMax = route.bodyBytesMax === UPLOAD ? uploadBytesMax : route.bodyBytesMax!;
  const body = wholeBody(request, bytesMax);
  return body instanceof Promise ? handledLater(route, call, body) : handled(route, call, body);
}

async function handledLater(route: AnyRoute, call: RoutedCall, body: Promise<Buffer>): Promise<unknown> {
  return handled(route, call, await body);
}

function wholeBody(request: HttpRequest, bytesMax: number): Buffer | Promise<Buffer> {
  const body = request.body(bytesMax);
  const encoding = request.header("content-encoding");
  return encoding === null || encoding === "identity" ? body : inflatedBody(body, encoding, bytesMax);
}

async function inflatedBody(body: Buffer | Promise<Buffer>, encoding: string, bytesMax: number) {
  return inflated(await body, encoding, bytesMax);
}

function handled(route: AnyRoute, call: RoutedCall, bytes: Buffer): unknown {
  const { body } = route;
  if (body instanceof Raw) {
    call.body = bytes;
    return route.handler(call);
  }
  return handledJson(route, call, bytes);
}

function handledJson(route: AnyRoute, call: RoutedCall, bytes: Buffer): unknown {
  return whenKnown(jsonOf(bytes), (value) => {
    call.body = validate(route.body as ZodType, value, route.invalid);
    return route.handler(call);
  });
}

/** An empty body is `{}`, as absent params are on RPC: the schema says what is missing. */
const jsonOf = (bytes: Buffer): unknown => (isBlank(bytes) ? {} : readJson(bytes));

const BLANK_BYTES_MAX = 1_024;
const isBlank = (bytes: Buffer): boolean =>
  bytes.length <= BLANK_BYTES_MAX && bytes.toString("latin1").trim() === "";

function answerOf(route: AnyRoute, result: unknown, requestId: string): Answered | Promise<Answered> {
  const { response } = route;
  if (response instanceof Raw) return result instanceof Response ? replyOf(result) : (result as Answered);
  const { status, value } = result instanceof Answer ? result : { status: 200, value: result };
  // Parsing drops every field that the definition does not list, so no handler can leak one.
  return jsonReply(JSON.stringify(response.parse(value)), requestId, status);
}
