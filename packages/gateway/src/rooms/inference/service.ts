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
import type { EventHub } from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import {
  ERRORS,
  fail,
  KeyRefusal,
  type ServiceError,
  toRestReply,
  toServiceError,
} from "../../kernel/errors.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import type { RefusedCall, RouteCall } from "../../kernel/route.ts";
import type { Metrics } from "../../observe/metrics.ts";
import type { RequestFailure } from "../../observe/request-records.ts";
import type { Tracer } from "../../observe/tracing.ts";
import type { Billing } from "../billing/index.ts";
import type { Conversations } from "../conversations/index.ts";
import { type Principal, payerOf } from "../keys/index.ts";
import type { Memory } from "../memory/index.ts";
import type { Metering } from "../metering/index.ts";
import type { Routing } from "../routing/index.ts";
import { type ChatParts, ChatTurn } from "./chat.ts";
import { CallWatch, DEFAULT_DEADLINES, type Deadlines, isAboutClient } from "./deadlines.ts";
import { embed } from "./embeddings.ts";
import { isFinal, reportTo, toFailure } from "./failures.ts";
import { KeyWatchers } from "./key-watchers.ts";
import { CallObserver } from "./observer.ts";
import { Payload } from "./payload.ts";
import { QUICK_START_MODELS } from "./quick-start.ts";
import { fromResponses } from "./responses-body.ts";
import { ChatSender } from "./send.ts";
import type { Asker } from "./upstream-call.ts";

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
  events: EventHub;
  metering: Metering;
  billing: Pick<Billing, "limitsOf">;
  routing: Routing;
  conversations: Conversations;
  memory: Memory;
  /** Counts one inference request in the service's figures. */
  countRequest(): void;
  /** Told of every request that did not get its answer. */
  onFailure(failure: RequestFailure): void;
  deadlines?: Partial<Deadlines>;
  metrics: Metrics;
  tracer: Tracer;
}

type Answered = Reply | StreamedReply;
type KeyedCall = Pick<RouteCall, "request" | "requestId"> & { principal: Principal; body: Buffer };
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
  chatCompletions(call: KeyedCall): Promise<Answered> {
    return this.#answered(call, (asker, sent) => {
      const payload = sent.has("messages") || !sent.has("input") ? sent : fromResponses(sent);
      const { request: client } = call;
      const opening = ChatTurn.open(this.#parts, { asker, payload, client, withHistory: false });
      return opening instanceof Promise ? opening.then(answerTurn) : answerTurn(opening);
    });
  }

  /** `POST /v1/embeddings`. */
  embeddings(call: KeyedCall): Promise<Answered> {
    return this.#answered(call, (asker, payload) =>
      embed(this.#parts, { asker, payload, client: call.request }),
    );
  }

  #answered(call: KeyedCall, work: Work): Promise<Answered> {
    const { principal, requestId } = call;
    return work(this.#askerOf(call), new Payload(call.body)).then(
      (answer) => {
        this.options.countRequest();
        this.#watchers.answered(principal.keyId);
        if (answer instanceof Reply) return answer;
        return answer instanceof ChatTurn ? streamedReply(answer, requestId) : wholeReply(answer, requestId);
      },
      (error) => {
        if (!isAboutClient(error)) throw error;
        this.options.countRequest();
        return new Reply({ status: CLIENT_CLOSED, contentType: "", requestId }, "");
      },
    );
  }

  #askerOf({ request, requestId, principal }: KeyedCall): Asker {
    const traceparent = this.options.tracer.enabled ? request.header("traceparent") : null;
    const { group: rules } = principal;
    const payer = payerOf(principal);
    return { requestId, payer, rules, refId: refOf(request), channel: "gateway", traceparent };
  }

  /** Counts a request that failed, also one that did not reach its handler, and tells those who follow its key. */
  refuse(error: unknown, { request, requestId, principal }: RefusedCall): Reply {
    const refusal = toServiceError(error);
    if (refusal instanceof KeyRefusal) {
      const { status } = ERRORS[refusal.kind];
      const reason = status === 401 ? BAD_KEY : KEY_TOO_FAST;
      if (status === 401) this.#watchers.unknown(bearerOf(request) ?? "", { status, ...reason });
      this.#parts.observer.turnedAway({ requestId, status, ...reason });
    } else if (principal) {
      this.options.countRequest();
      this.#watchers.refused(principal.keyId, refusal);
      this.#count(requestId, refusal);
    }
    // Client libraries repeat a 502 on their own; what the upstream refused once it will refuse again.
    return toRestReply(refusal, requestId, isFinal(error) ? { "x-should-retry": "false" } : {});
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
