import {
  bearerOf,
  type HttpRequest,
  Reply,
  type StreamedReply,
  textOfHeader,
} from "@model-gateway/wire/http";
import { BackendError } from "../../backends/contract.ts";
import type { EventHub } from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { ERRORS, fail, KeyRefusal, ServiceError, toRestReply, toServiceError } from "../../kernel/errors.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import { CLIENT_CLOSED_STATUS, type RequestRecord } from "../../kernel/request-record.ts";
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
import { CallWatch, DEFAULT_DEADLINES, type Deadlines, isAboutClient } from "./call/deadlines.ts";
import { asUpstreamSaid, isFinal, reportTo, toFailure } from "./call/failures.ts";
import { CallObserver } from "./call/observer.ts";
import type { Asker } from "./call/upstream-call.ts";
import { embed } from "./embeddings.ts";
import { KeyWatchers } from "./key-watchers.ts";
import { QUICK_START_MODELS } from "./quick-start.ts";
import { BytesPayload } from "./request/bytes-payload.ts";
import { type ChatParts, ChatTurn } from "./turn/chat-turn.ts";
import { ChatSender } from "./voices/notifications/send.ts";
import { type Form, jsonReplyIn, refusalIn, VoicedReply } from "./voices/replies.ts";
import { failureOf, type Voice, type VoiceRoute } from "./voices/voice.ts";

const REF_LENGTH_MAX = 64;
const INVOKE_TIMEOUT_MS = 30_000;
const BAD_KEY = { code: "unauthorized", message: "the API key is missing, unknown or revoked" };
const KEY_TOO_FAST = { code: "rate_limit_exceeded", message: "the API key is over its requests a minute" };
const INVALID_KEY = new ServiceError(
  "auth_required",
  "Invalid API key: send `Authorization: Bearer service-…`, as keys.create showed it",
);
const OWN: { form: Form; isRequest: boolean } = { form: { wrapsUpstreamErrors: true }, isRequest: true };

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
  /** Counts one inference request for the service's totals. */
  countRequest(): void;
  /** Called for every request that got no answer. */
  onFailure(failure: RequestFailure): void;
  deadlines?: Partial<Deadlines>;
  /** Whether an upstream's refusal keeps its status on the contract's routes, too. */
  passesUpstreamErrors: boolean;
  metrics: Metrics;
  tracer: Tracer;
}

type Answered = Reply | StreamedReply;
type KeyedCall = Pick<RouteCall, "request" | "requestId" | "record"> & { principal: Principal; body: Buffer };

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

  /** A request to one of a voice's paths. */
  speak(voice: Voice, route: VoiceRoute, call: KeyedCall): Answered | Promise<Answered> {
    const { request: client, requestId, body } = call;
    if (route.answer) return jsonReplyIn(voice, route.answer(body), requestId);
    const { clock } = this.options;
    return this.#metered(call, (asker) => {
      const read = voice.read(body, { requestId, nowMs: clock.now() });
      const reply = new VoicedReply(voice, read, requestId, clock);
      const { payload } = read;
      const { listener } = reply;
      const opening = ChatTurn.open(this.#parts, { asker, payload, client, isConversation: false, listener });
      return opening instanceof Promise ? opening.then((turn) => reply.to(turn)) : reply.to(opening);
    });
  }

  /** `POST /v1/embeddings`. */
  embeddings(call: KeyedCall): Promise<Answered> {
    const { request: client, body } = call;
    return this.#metered(call, (asker) =>
      embed(this.#parts, { asker, payload: new BytesPayload(body), client }),
    );
  }

  /** A request that spends. */
  #metered(call: KeyedCall, work: (asker: Asker) => Promise<Answered>): Promise<Answered> {
    const { principal, request, requestId, record } = call;
    const traceparent = this.options.tracer.enabled ? request.header("traceparent") : null;
    const { group: rules } = principal;
    const payer = payerOf(principal);
    const refId = refOf(request);
    const asker: Asker = { requestId, payer, rules, refId, channel: "gateway", traceparent, record };
    return work(asker).then(
      (answer) => {
        this.options.countRequest();
        this.#watchers.answered(principal.keyId);
        return answer;
      },
      (error) => {
        if (!isAboutClient(error)) throw error;
        this.options.countRequest();
        return new Reply({ status: CLIENT_CLOSED_STATUS, contentType: "", requestId }, "");
      },
    );
  }

  /** Counts a failure, even one before the handler ran, notifies the key's watchers, and answers in the API's form. */
  refuse(
    error: unknown,
    { request, requestId, principal }: RefusedCall,
    { form, isRequest }: { form: Form; isRequest: boolean } = OWN,
  ): Reply {
    const refusal = toServiceError(error);
    if (refusal instanceof KeyRefusal) {
      const { status } = ERRORS[refusal.kind];
      const reason = status === 401 ? BAD_KEY : KEY_TOO_FAST;
      if (status === 401)
        this.#watchers.unknown(secretOf(request, form.keyHeader) ?? "", { status, ...reason });
      this.#parts.observer.turnedAway({ requestId, status, ...reason });
      if (!form.errorBody) return toRestReply(refusal, requestId);
      if (status === 401 && isRequest) return this.#inForm(form, INVALID_KEY, requestId);
      const message = refusal.message.trim();
      const failure = { status, message, type: "invalid_request", code: null };
      return refusalIn(form, toRestReply(refusal, requestId), failure);
    }
    if (principal) {
      if (isRequest) this.options.countRequest();
      this.#watchers.refused(principal.keyId, refusal);
      this.#count(requestId, refusal);
    }
    // Client libraries repeat a 502 on their own; what the upstream refused once it will refuse again.
    const isWrapped = form.wrapsUpstreamErrors && !this.options.passesUpstreamErrors;
    const told = isWrapped ? refusal : asUpstreamSaid(refusal);
    return this.#inForm(form, told, requestId, isFinal(error) ? { "x-should-retry": "false" } : {});
  }

  #inForm(form: Form, refusal: ServiceError, requestId: string, headers = {}): Reply {
    return refusalIn(form, toRestReply(refusal, requestId, headers), failureOf(refusal));
  }

  /** Upstream failures were already counted as the outcome of a call. */
  #count(requestId: string, refusal: ServiceError): void {
    if (!(refusal.cause instanceof BackendError)) this.#parts.observer.refused(requestId, refusal);
  }

  /** `chat.send`. */
  async send(actor: Actor, body: Record<string, unknown>, record: RequestRecord | null) {
    this.options.countRequest();
    // An id of its own: the calls of one RPC batch share theirs, and usage is counted once per id.
    const requestId = record?.id ?? this.options.ids.ordered();
    try {
      return await this.#sender.send({ actor, requestId, body, record });
    } catch (error) {
      this.#count(requestId, toServiceError(error));
      throw error;
    }
  }

  /** `chat.stop`. */
  stop(actor: Actor, streamId: string): void {
    this.#sender.stop(actor, streamId);
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
      // An error from the engine concerns this method only; it must not open the circuit for chats.
      if (error instanceof BackendError && error.kind === "upstream") route.succeeded();
      else reportTo(route, error);
      throw toFailure(error);
    }
  }

  /** Model routes and models of healthy backends, then the quick-start ones that none of them serves. */
  models() {
    const { routing } = this.options;
    const routed = routing.routedModels().map((model) => ({ ...model, owned_by: "route" }));
    const names = new Set(routed.map(({ id }) => id));
    const callable = [...routed, ...routing.routableModels().filter(({ id }) => !names.has(id))];
    const known = new Set(callable.map(({ id }) => id));
    const advertised = QUICK_START_MODELS.filter(({ id }) => !known.has(id)).map(({ id, owned_by }) => ({
      id,
      owned_by,
      available: false,
      quick_start: true as const,
    }));
    const head = { object: "model" as const, created: 0 };
    return {
      object: "list" as const,
      data: [...callable, ...advertised].map(({ id, ...model }) => ({ id, ...head, ...model })),
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

/** The key of a request: the bearer, or what the API's own header says. */
const secretOf = (request: HttpRequest, keyHeader: string | undefined): string | null =>
  bearerOf(request) ?? (keyHeader ? request.header(keyHeader) : null);
