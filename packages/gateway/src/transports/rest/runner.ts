import {
  bearerOf,
  type HttpRequest,
  jsonReply,
  Reply,
  replyOf,
  type StreamedReply,
} from "@model-gateway/wire/http";
import type { ZodType } from "zod";
import type { Counter, RateLimit } from "../../bus/contract.ts";
import { type AuditSink, auditEntry } from "../../kernel/audit.ts";
import { Purse } from "../../kernel/bounded.ts";
import {
  type Actor,
  type Authenticator,
  type CallSource,
  type Principal,
  type Rooms,
  SourcedCaller,
} from "../../kernel/context.ts";
import { authorize } from "../../kernel/dispatch.ts";
import { fail, isOurs, KeyRefusal, ServiceError, toRestReply, toServiceError } from "../../kernel/errors.ts";
import { type FailedTries, TooManyKeys } from "../../kernel/failed-tries.ts";
import { readJson } from "../../kernel/json.ts";
import type { Log } from "../../kernel/log.ts";
import type { MethodAuth } from "../../kernel/method.ts";
import { CLIENT_CLOSED_STATUS, type RequestRecord } from "../../kernel/request-record.ts";
import { Answer, type AnyRoute, isAudited, Raw, type RouteCall, UPLOAD } from "../../kernel/route.ts";
import { LARGE_BODY_BYTES } from "../../kernel/turns.ts";
import { validate } from "../../kernel/validate.ts";

const BODY_BYTES_IN_FLIGHT_MAX = 512 * 1024 * 1024;

const NOBODY = { actor: null, adminToken: false };

export interface RouteRunnerOptions {
  gate: Gate;
  record(surface: string, requestId: string): RequestRecord | null;
  rooms: Rooms;
  log: Log;
  uploadBytesMax: number;
  audit: AuditSink;
  keyRefused(principal: Principal, failure: ServiceError): void;
}

/** The call on its way to the handler: the gate sets who calls, `receive` sets query and body. */
type RoutedCall = RouteCall & { actor: Actor | null };

interface RoutedRequest {
  request: HttpRequest;
  path: Record<string, string>;
  requestId: string;
  source: CallSource;
}

type CallReply = Reply | StreamedReply;

/** Runs a route: checks the caller, reads the body, calls the handler, checks its answer, answers errors. */
export class RouteRunner {
  readonly #bytes = new Purse(BODY_BYTES_IN_FLIGHT_MAX);

  constructor(readonly options: RouteRunnerOptions) {}

  async run(route: AnyRoute, { request, path, requestId, source }: RoutedRequest): Promise<CallReply> {
    const { gate, rooms, log, uploadBytesMax } = this.options;
    const record = route.recorded ? this.options.record(route.path, requestId) : null;
    const call: RoutedCall = {
      rooms,
      log,
      request,
      requestId,
      path,
      record,
      caller: new SourcedCaller(NOBODY, source),
      principal: null,
      actor: null,
      query: undefined,
      body: undefined,
    };
    const hold = { account: "", bytes: 0 };
    try {
      await gate.admit(route, call);
      hold.account = call.principal?.userId ?? call.actor?.userId ?? call.caller.ip;
      await receive(route, call, { uploadBytesMax, hold: (bytes) => this.#hold(hold, bytes) });
      const result = await route.handler(call);
      if (isAudited(route)) await this.#audit(route, call, result);
      const answer = this.#untilSent(await answerOf(route, result, requestId), hold.account);
      if (record) noteAnswer(record, answer);
      return answer;
    } catch (error) {
      return this.#refuse(route, error, call);
    } finally {
      this.#bytes.give(hold.account, hold.bytes);
    }
  }

  #hold(hold: { account: string; bytes: number }, bytes: number): void {
    if (bytes > 0 && !this.#bytes.take(hold.account, bytes))
      fail("rate_limited", "Your requests in progress are too large together; wait for some to end", {
        retryAfterSeconds: 1,
      });
    hold.bytes += bytes;
  }

  /** Counts a large answer until it is sent or dropped: its client may not read it. */
  #untilSent(answer: CallReply, account: string): CallReply {
    if (!(answer instanceof Reply)) return answer;
    const { head, body, release } = answer;
    const bytes = Array.isArray(body) ? body.reduce((sum, { length }) => sum + length, 0) : body.length;
    if (bytes < LARGE_BODY_BYTES) return answer;
    this.#hold({ account, bytes: 0 }, bytes);
    return new Reply(head, body, () => {
      release?.();
      this.#bytes.give(account, bytes);
    });
  }

  async #audit({ method, path }: AnyRoute, call: RoutedCall, result: unknown): Promise<void> {
    const { caller, requestId, body } = call;
    const value = result instanceof Answer ? result.value : result;
    const entry = { action: `${method} ${path}`, caller, requestId };
    await this.options.audit.record(auditEntry(entry, { ...call.path, ...(body ?? {}) }, value));
  }

  #refuse(route: AnyRoute, error: unknown, call: RoutedCall): Reply | Promise<Reply> {
    const failure = toServiceError(error);
    const { request, requestId, log, principal } = call;
    if (principal) this.options.keyRefused(principal, failure);
    if (isOurs(failure)) log.error("route failed", { request_id: requestId, path: request.path, error });
    const reply = route.refuse ? route.refuse(error, call) : toRestReply(failure, requestId);
    // Callers without a key must not crowd out the records of others.
    if (call.record && !(failure instanceof TooManyKeys)) {
      call.record.addDetails({ clientIp: call.caller.ip });
      call.record.refused(failure, reply instanceof Reply ? reply.head.status : undefined);
    }
    return reply;
  }
}

/** The record of a streamed answer is ended by its writer. */
function noteAnswer(record: RequestRecord, answer: CallReply): void {
  if (!(answer instanceof Reply)) return;
  const { status } = answer.head;
  if (status === CLIENT_CLOSED_STATUS) record.left();
  else record.end(status);
}

async function receive(
  route: AnyRoute,
  call: RoutedCall,
  { uploadBytesMax, hold }: { uploadBytesMax: number; hold: (bytes: number) => void },
): Promise<void> {
  const { request } = call;
  if (route.query)
    call.query = validate(
      route.query,
      Object.fromEntries(new URLSearchParams(request.search)),
      route.invalid,
    );
  if (!route.body) return;
  const bytesMax = route.bodyBytesMax === UPLOAD ? uploadBytesMax : route.bodyBytesMax!;
  const declared = Number(request.header("content-length") ?? 0);
  if (declared <= bytesMax) hold(declared);
  const bytes = await request.body(bytesMax);
  hold(Math.max(0, bytes.length - declared));
  const encoding = request.header("content-encoding");
  const isPlain = encoding === null || encoding === "identity";
  const body = isPlain ? bytes : await inflated(bytes, encoding, bytesMax);
  if (!isPlain) hold(body.length);
  call.body =
    route.body instanceof Raw ? body : validate(route.body as ZodType, await jsonOf(body), route.invalid);
}

/** An empty body counts as `{}`, like absent params on RPC, so that the schema names what is missing. */
const jsonOf = (bytes: Buffer): unknown => (isBlank(bytes) ? {} : readJson(bytes));

const BLANK_BYTES_MAX = 1_024;
const isBlank = (bytes: Buffer): boolean =>
  bytes.length <= BLANK_BYTES_MAX && bytes.toString("latin1").trim() === "";

function answerOf(route: AnyRoute, result: unknown, requestId: string): CallReply | Promise<CallReply> {
  const { response } = route;
  if (response instanceof Raw) return result instanceof Response ? replyOf(result) : (result as CallReply);
  const { status, value } = result instanceof Answer ? result : { status: 200, value: result };
  // Parsing drops every field that the definition does not list, so no handler can leak one.
  return jsonReply(JSON.stringify(response.parse(value)), requestId, status);
}

/** Text compresses to about a tenth. What compresses far better is an attack on the memory. */
const RATIO_MAX = 100;
const SMALL_BYTES = 1024 * 1024;

export function inflated(bytes: Buffer, encoding: string, mostBytes: number): Promise<Buffer> {
  const bytesMax = Math.min(mostBytes, Math.max(SMALL_BYTES, bytes.length * RATIO_MAX));
  const name = encoding.trim().toLowerCase();
  if (name !== "gzip" && name !== "x-gzip") {
    fail(
      "unsupported_media_type",
      `content-encoding ${JSON.stringify(encoding.slice(0, 64))} is not read here: send gzip, or the body as it is`,
    );
  }
  const { gunzip } = process.getBuiltinModule("node:zlib");
  return new Promise((resolve, reject) => {
    gunzip(bytes, { maxOutputLength: bytesMax }, (error, whole) => {
      if (!error) resolve(whole);
      else reject(refusalOf(error as NodeJS.ErrnoException, bytesMax));
    });
  });
}

const refusalOf = ({ code }: NodeJS.ErrnoException, bytesMax: number): ServiceError =>
  code === "ERR_BUFFER_TOO_LARGE"
    ? new ServiceError("body_too_large", `The body inflates to more than ${bytesMax} bytes`)
    : new ServiceError("invalid_request", "The body is not valid gzip, as its content-encoding says");

const WINDOW_MS = 60_000;
const UNAUTHORIZED = "Missing or invalid API key; send it as Authorization: Bearer service-<uuid>\n";
const TOO_MANY = "Rate limit exceeded. Try again later.";

interface Rate extends RateLimit {
  refuse(max: number, waitMs: number): never;
}

interface GateOptions {
  authenticator: Authenticator;
  keys: { authenticate(secret: string): Promise<Principal | null> };
  counter: Counter;
  tries: FailedTries;
  keyTries: FailedTries;
  settings: { readonly apiRateLimitRpm: number };
  tierRates(principal: Principal): readonly Rate[];
}

const tooMany = (): never => {
  throw new KeyRefusal("rate_limited", TOO_MANY);
};
const unauthorized = () => new KeyRefusal("auth_required", UNAUTHORIZED);

type Keyed = Pick<RouteCall, "request" | "principal" | "record"> & { caller: Pick<CallSource, "ip"> };

/** Authenticates the caller of a route and sets who it is, or throws the refusal. */
export class Gate {
  constructor(readonly options: GateOptions) {}

  admit(route: AnyRoute, call: RouteCall): Promise<void> | null {
    if (route.auth === "public") return null;
    if (route.auth !== "api_key") return this.#person(route, route.auth, call);
    const { request } = call;
    const { keyHeader, keyQuery } = route;
    const secret =
      bearerOf(request) ||
      (keyHeader ? request.header(keyHeader) : null) ||
      (keyQuery ? new URLSearchParams(request.search).get(keyQuery) : null);
    return this.#keyed(secret, route, call);
  }

  /** Authenticates the key of a new WebSocket, which counts as a request. */
  async keyHolder(secret: string | null, given: Omit<Keyed, "principal">): Promise<Principal> {
    const call: Keyed = { ...given, principal: null };
    await this.#keyed(secret, {}, call);
    return call.principal!;
  }

  /** The key's current principal; throws if it has expired or was revoked. */
  async stillHolder(secret: string | null): Promise<Principal> {
    const principal = secret ? await this.options.keys.authenticate(secret) : null;
    if (!principal) throw unauthorized();
    return principal;
  }

  async #keyed(secret: string | null, route: Pick<AnyRoute, "outsideTierRate">, call: Keyed): Promise<void> {
    const { keys, keyTries, counter, settings, tierRates } = this.options;
    const principal = secret ? await keys.authenticate(secret) : null;
    if (!principal) throw keyTries.failed(call.caller.ip) ?? unauthorized();
    call.request.vouch();
    // Also if the rate limit refuses it.
    if (call.record) call.record.principal = principal;
    const ofKey = {
      key: `api:${principal.keyId}`,
      max: settings.apiRateLimitRpm,
      windowMs: WINDOW_MS,
      refuse: tooMany,
    };
    const rates: Rate[] = route.outsideTierRate ? [ofKey] : [ofKey, ...tierRates(principal)];
    const exceeded = await counter.hit(rates);
    call.principal = principal;
    if (!exceeded) return;
    const { refuse, max } = rates[exceeded.at]!;
    refuse(max, exceeded.waitMs);
  }

  async #person(route: AnyRoute, auth: MethodAuth, call: RouteCall): Promise<void> {
    const { authenticator, tries } = this.options;
    const identity = await authenticator.identify(bearerOf(call.request));
    const refusal = identity.isGuess ? tries.failed(call.caller.ip) : null;
    if (refusal) throw refusal;
    call.actor = authorize({ auth, name: `${route.method} ${route.path}` }, identity);
    call.caller = new SourcedCaller(identity, call.caller);
    call.request.vouch();
  }
}
