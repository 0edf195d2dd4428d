import {
  bearerOf,
  EVENT_STREAM_HEADERS,
  EVENT_STREAM_TYPE,
  type HttpRequest,
  jsonReply,
  Reply,
  type ReplySource,
  type ReplyWriter,
  StreamedReply,
  textOfHeader,
} from "@model-gateway/wire/http";
import { BackendError } from "../../backends/contract.ts";
import type { EventHub, RateLimiter } from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail, type ServiceError, toRestReply, toServiceError } from "../../kernel/errors.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import type { Metrics } from "../../kernel/metrics.ts";
import type { Tracer } from "../../kernel/tracing.ts";
import type { Billing } from "../billing/index.ts";
import type { Conversations } from "../conversations/index.ts";
import { type Keys, type Principal, payerOf } from "../keys/index.ts";
import type { Memory } from "../memory/index.ts";
import type { Metering } from "../metering/index.ts";
import type { Routing } from "../routing/index.ts";
import { CallWatch, DEFAULT_DEADLINES, type Deadlines, isAboutClient } from "./call/deadlines.ts";
import { isFinal, reportTo, toFailure } from "./call/failures.ts";
import { CallObserver, type RequestFailure } from "./call/observer.ts";
import type { Asker } from "./call/upstream-call.ts";
import { embed } from "./embeddings.ts";
import { KeyWatchers } from "./key-watchers.ts";
import { QUICK_START_MODELS } from "./quick-start.ts";
import { requireApiKey } from "./request/api-key.ts";
import { Payload } from "./request/payload.ts";
import { type ChatParts, ChatTurn } from "./turn/chat-turn.ts";
import { fromResponses } from "./voices/chat/responses-body.ts";
import { ChatSender } from "./voices/notifications/send.ts";

const BODY_BYTES_MAX = 32 * 1024 * 1024;
const REF_LENGTH_MAX = 64;
const INVOKE_TIMEOUT_MS = 30_000;
const BAD_KEY = { code: "unauthorized", message: "the API key is missing, unknown or revoked" };
const KEY_TOO_FAST = { code: "rate_limit_exceeded", message: "the API key is over its requests a minute" };
/** What proxies use for a client that closed its connection; nobody is there to read it. */
const CLIENT_CLOSED = 499;

export interface InferenceOptions {
  clock: Clock;
  ids: Ids;
  log: Log;
  limiter: RateLimiter;
  events: EventHub;
  keys: Keys;
  metering: Metering;
  billing: Pick<Billing, "limitsOf">;
  routing: Routing;
  conversations: Conversations;
  memory: Memory;
  apiRateLimitRpm: number;
  /** Counts one inference request in the service's figures. */
  countRequest(): void;
  /** Told of every request that did not get its answer. */
  onFailure(failure: RequestFailure): void;
  deadlines?: Partial<Deadlines>;
  metrics: Metrics;
  tracer: Tracer;
}

type Answered = Reply | StreamedReply;
/** What an admitted request comes to: the whole answer, or a turn whose stream has begun. */
type Work = (asker: Asker, payload: Payload) => Promise<WholeAnswer | ChatTurn | Reply>;

/** Chat and embeddings on every surface. */
export class Inference {
  readonly #parts: ChatParts;
  readonly #sender: ChatSender;
  readonly #watch: CallWatch;
  readonly #watchers: KeyWatchers;

  constructor(readonly options: InferenceOptions) {
    const { clock, log, metering, routing, conversations, memory, events, billing } = options;
    this.#watch = new CallWatch(clock, { ...DEFAULT_DEADLINES, ...options.deadlines });
    const observer = new CallObserver(options.metrics, options.tracer, clock, options.onFailure);
    this.#parts = {
      clock,
      log,
      metering,
      routing,
      conversations,
      memory,
      watch: this.#watch,
      observer,
      limitsOf: (model) => billing.limitsOf(model),
    };
    this.#sender = new ChatSender(this.#parts, events);
    this.#watchers = new KeyWatchers(events);
  }

  /** Calls to upstreams that are under way. */
  get callsInFlight(): number {
    return this.#watch.count;
  }

  /** `POST /v1/chat/completions`. */
  chatCompletions(request: HttpRequest, requestId: string): Answered | Promise<Answered> {
    return this.#admitted(request, requestId, (asker, sent) => {
      const payload = sent.has("messages") || !sent.has("input") ? sent : fromResponses(sent);
      const opening = ChatTurn.open(this.#parts, { asker, payload, client: request, withHistory: false });
      return opening instanceof Promise ? opening.then(answerTurn) : answerTurn(opening);
    });
  }

  /** `POST /v1/embeddings`. */
  embeddings(request: HttpRequest, requestId: string): Answered | Promise<Answered> {
    return this.#admitted(request, requestId, (asker, payload) =>
      embed(this.#parts, { asker, payload, client: request }),
    );
  }

  /** Who the request's API key stands for, or the plain-text refusal of the key or its limit. */
  principal(request: HttpRequest, requestId: string): Principal | Reply | Promise<Principal | Reply> {
    const { keys, limiter, apiRateLimitRpm: rpm } = this.options;
    return requireApiKey({ keys, limiter, rpm }, request, requestId);
  }

  /**
   * What both have in common: the key, its limits, the body, and how refusals look. Promises are made only where
   * something has to be waited for: this is around every request.
   */
  #admitted(request: HttpRequest, requestId: string, work: Work): Answered | Promise<Answered> {
    const found = this.principal(request, requestId);
    return found instanceof Promise
      ? found.then((principal) => this.#identified(request, requestId, principal, work))
      : this.#identified(request, requestId, found, work);
  }

  #identified(
    request: HttpRequest,
    requestId: string,
    principal: Principal | Reply,
    work: Work,
  ): Answered | Promise<Answered> {
    if (principal instanceof Reply) {
      const { status } = principal.head;
      if (status === 401) this.#watchers.unknown(bearerOf(request) ?? "", { status, ...BAD_KEY });
      this.#parts.observer.turnedAway({ requestId, status, ...(status === 401 ? BAD_KEY : KEY_TOO_FAST) });
      return principal;
    }
    this.options.countRequest();
    try {
      return this.#work(request, requestId, principal, work).then(
        (answer) => {
          this.#watchers.answered(principal.keyId);
          if (answer instanceof Reply) return answer;
          return answer instanceof ChatTurn
            ? streamedReply(answer, requestId)
            : wholeReply(answer, requestId);
        },
        (error) => this.#refused(error, requestId, principal),
      );
    } catch (error) {
      return this.#refused(error, requestId, principal);
    }
  }

  #work(request: HttpRequest, requestId: string, principal: Principal, work: Work): ReturnType<Work> {
    const payer = payerOf(principal);
    const refId = refOf(request);
    const limited = this.options.metering.checkRate(payer);
    const traceparent = this.options.tracer.enabled ? request.header("traceparent") : null;
    const { group: rules } = principal;
    const asker: Asker = { requestId, payer, rules, refId, channel: "gateway", traceparent };
    const read = (body: Buffer) => work(asker, new Payload(body));
    if (limited) return limited.then(() => request.body(BODY_BYTES_MAX)).then(read);
    const body = request.body(BODY_BYTES_MAX);
    return body instanceof Promise ? body.then(read) : read(body);
  }

  #refused(error: unknown, requestId: string, { keyId }: Principal): Reply {
    if (isAboutClient(error)) return new Reply({ status: CLIENT_CLOSED, contentType: "", requestId }, "");
    const refusal = toServiceError(error);
    this.#watchers.refused(keyId, refusal);
    this.#count(requestId, refusal);
    if (!isFinal(error)) throw error;
    // Client libraries repeat a 502 on their own; what the upstream refused once it will refuse again.
    return toRestReply(refusal, requestId, { "x-should-retry": "false" });
  }

  /** What an upstream did has been counted as the outcome of a call. */
  #count(requestId: string, refusal: ServiceError): void {
    if (!(refusal.cause instanceof BackendError)) this.#parts.observer.refused(requestId, refusal);
  }

  /** `chat.send`. */
  async send(actor: Actor, body: Record<string, unknown>) {
    this.options.countRequest();
    // An id of its own: the calls of one RPC batch share theirs, and usage is counted once per id.
    const requestId = this.options.ids.uuid();
    try {
      return await this.#sender.send({ actor, requestId, body });
    } catch (error) {
      this.#count(requestId, toServiceError(error));
      throw error;
    }
  }

  /** `engine.invoke`: the method and params as they are, and the raw result. */
  async invoke({
    model,
    method,
    params,
  }: {
    model: string;
    method: string;
    params?: Record<string, unknown>;
  }): Promise<unknown> {
    const { routing } = this.options;
    const route = routing.choose({ model: routing.aliases.resolve(model), capability: "invoke" });
    const expiry = AbortSignal.timeout(INVOKE_TIMEOUT_MS);
    try {
      if (!route.backend.invoke) fail("backend_error", "the backend does not support generic invocation");
      const result = await route.backend.invoke(method, params, expiry);
      route.succeeded();
      return result;
    } catch (error) {
      // An error that the engine answered is about the method; chats must not lose their backend over it.
      if (error instanceof BackendError && error.kind === "upstream") route.succeeded();
      else reportTo(route, error);
      throw toFailure(error);
    }
  }

  /** Models of healthy backends, then the quick-start ones that none of them serves. */
  models() {
    const routable = this.options.routing.routableModels();
    const known = new Set(routable.map(({ id }) => id));
    const all = [...routable, ...QUICK_START_MODELS.filter(({ id }) => !known.has(id))];
    return {
      object: "list" as const,
      data: all.map(({ id, owned_by }) => ({ id, object: "model" as const, created: 0, owned_by })),
    };
  }

  model(id: string) {
    const found = this.models().data.find((each) => each.id === id);
    return found ?? fail("model_not_found", `No backend available for model: ${id.slice(0, 256)}`);
  }

  /** Ends every call; their usage is journaled when this resolves. */
  close(): Promise<void> {
    return this.#watch.close();
  }
}

function refOf(request: HttpRequest): string | null {
  const ref = textOfHeader(request.header("x-service-ref") ?? "");
  if (ref.length > REF_LENGTH_MAX)
    fail("missing_fields", `The header x-service-ref may have at most ${REF_LENGTH_MAX} characters`);
  return ref || null;
}

/** An answer that does not stream, and what it was limited to. */
interface WholeAnswer {
  body: Buffer;
  loweredTo: number | null;
}

const answerTurn = (turn: ChatTurn): Promise<WholeAnswer | ChatTurn> =>
  turn.fields.stream
    ? turn.begin()
    : turn.answer().then((body) => ({ body, loweredTo: turn.call.loweredTo }));

/** Says what an answer was limited to because no more of it can be paid. */
const LOWERED_HEADER = "x-service-max-tokens";

const wholeReply = ({ body, loweredTo }: WholeAnswer, requestId: string): Reply =>
  loweredTo === null
    ? jsonReply(body, requestId)
    : jsonReply(body, requestId, 200, { [LOWERED_HEADER]: String(loweredTo) });

/** A turn whose answer is written to the client as it comes. */
class ChatSource implements ReplySource {
  constructor(readonly turn: ChatTurn) {}

  begin(writer: ReplyWriter): void {
    // A failure has been written to the stream by then; the status is long gone.
    this.turn.run(writer).catch(() => {});
  }
  drained(): void {
    this.turn.drained();
  }
  left(): void {
    this.turn.left();
  }
}

const streamHeaders = (loweredTo: number | null): Record<string, string> =>
  loweredTo === null
    ? EVENT_STREAM_HEADERS
    : { ...EVENT_STREAM_HEADERS, [LOWERED_HEADER]: String(loweredTo) };

const streamedReply = (turn: ChatTurn, requestId: string): StreamedReply =>
  new StreamedReply(
    { status: 200, contentType: EVENT_STREAM_TYPE, requestId, headers: streamHeaders(turn.call.loweredTo) },
    new ChatSource(turn),
  );
