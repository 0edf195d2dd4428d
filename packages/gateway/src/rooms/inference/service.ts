import {
  bearerOf,
  type HttpRequest,
  Reply,
  type StreamedReply,
  textOfHeader,
} from "@model-gateway/wire/http";
import { BackendError } from "../../backends/contract.ts";
import type { EventHub } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { Actor } from "../../kernel/context.ts";
import { ERRORS, fail, KeyRefusal, ServiceError, toRestReply, toServiceError } from "../../kernel/errors.ts";
import { TooManyKeys } from "../../kernel/failed-tries.ts";
import type { Payer } from "../../kernel/payer.ts";
import { CLIENT_CLOSED_STATUS, type RequestRecord } from "../../kernel/request-record.ts";
import { REF_LENGTH_MAX } from "../../kernel/request-row.ts";
import type { RefusedCall, RouteCall } from "../../kernel/route.ts";
import type { Billing } from "../billing/index.ts";
import type { Conversations } from "../conversations/index.ts";
import type { Needs } from "../foundation.ts";
import { type Principal, payerOf, prefixOf } from "../keys/index.ts";
import type { Memory } from "../memory/index.ts";
import type { Metering } from "../metering/index.ts";
import { type Background, isFinal, type Routing, reportTo } from "../routing/index.ts";
import { CallWatch, DEFAULT_DEADLINES, type Deadlines, isAboutClient } from "./call/deadlines.ts";
import { asUpstreamSaid, nativeRefusal, toFailure } from "./call/failures.ts";
import { CallObserver } from "./call/observer.ts";
import { sessionHeader } from "./call/session.ts";
import { type Asker, UpstreamCall } from "./call/upstream-call.ts";
import { embed, type ReadEmbeddings } from "./embeddings.ts";
import { ModelList } from "./model-list.ts";
import { keyRequest } from "./notifications.ts";
import { readWorkFields } from "./request/fields.ts";
import { Payload } from "./request/payload.ts";
import { StoredResponses } from "./responses/service.ts";
import { type ChatParts, ChatTurn } from "./turn/chat-turn.ts";
import type { WorkKind } from "./unit-work/kinds.ts";
import { serveWork } from "./unit-work/serve.ts";
import { voices } from "./voices/index.ts";
import { ChatSender } from "./voices/notifications/send.ts";
import { type Form, jsonReplyIn, type ReplyOptions, refusalIn, VoicedReply } from "./voices/replies.ts";
import {
  failureOf,
  type NativeRead,
  type RequestContext,
  type Voice,
  type VoiceRoute,
} from "./voices/voice.ts";

const KEPT_THOUGHTS_MAX = 1_024;
const INVOKE_TIMEOUT_MS = 30_000;
const BAD_KEY = { code: "unauthorized", message: "the API key is missing, unknown or revoked" };
const INVALID_KEY = new ServiceError(
  "auth_required",
  "Invalid API key: send `Authorization: Bearer service-…`, as keys.create showed it",
);
type EmbeddingsReader = (body: Buffer) => Promise<ReadEmbeddings>;
const readBytes: EmbeddingsReader = async (body) => ({ payload: await Payload.read(body) });
const OWN: { form: Form; isRequest: boolean } = { form: { wrapsUpstreamErrors: true }, isRequest: true };

export interface InferenceOptions
  extends Needs<"db" | "clock" | "ids" | "log" | "events" | "revocations" | "metrics" | "tracer"> {
  /** Whether other processes use the same database. */
  isShared: boolean;
  metering: Metering;
  billing: Pick<Billing, "pricing">;
  routing: Routing;
  conversations: Conversations;
  memory: Memory;
  isInForce(payer: Payer): Promise<boolean>;
  countRequest(): void;
  deadlines?: Partial<Deadlines>;
  /** Whether an upstream's refusal also keeps its status on the contract's own routes. */
  passesUpstreamErrors: boolean;
  storesResponses: boolean;
}

type Headed = { request: Pick<HttpRequest, "header"> };
type CallReply = Reply | StreamedReply;
type KeyedCall = Pick<RouteCall, "requestId" | "record"> & {
  request: Pick<HttpRequest, "header" | "headersLike" | "signal" | "whenGone">;
  principal: Principal;
  body: Buffer;
  /** Set for a line of a batch: replaces metering, and tells when to give way. */
  line?: { metering: ChatParts["metering"]; background: Background };
};
export type LineCall = KeyedCall & Required<Pick<KeyedCall, "line">>;

export class Inference {
  readonly #parts: ChatParts;
  readonly #sender: ChatSender;
  readonly #watch: CallWatch;
  readonly #watchers: KeyWatchers;
  readonly responses: StoredResponses;
  readonly models: ModelList;
  readonly #replyOptions: ReplyOptions;

  constructor(readonly options: InferenceOptions) {
    const { clock, log, metering, routing, conversations, memory, events, billing, db, isShared } = options;
    this.#watch = new CallWatch({
      clock,
      log,
      deadlines: { ...DEFAULT_DEADLINES, ...options.deadlines },
      isInForce: (payer) => options.isInForce(payer),
    });
    options.revocations.onChange((id) => this.#watch.recheck(id));
    const observer = new CallObserver(options.metrics, options.tracer, clock);
    this.#parts = {
      clock,
      log,
      metering,
      routing,
      conversations,
      memory,
      thoughts: new BoundedMap(KEPT_THOUGHTS_MAX),
      watch: this.#watch,
      observer,
      limitsOf: (model) => billing.pricing.limitsOf(model),
      unitPriceOf: ({ model, isOwn }, units) => billing.pricing.unitPriceOf(model, units, isOwn),
    };
    this.#replyOptions = { clock, toClientError: (form, failure) => this.#toClientError(form, failure) };
    this.#sender = new ChatSender({ ...this.#parts, metering }, events);
    this.#watchers = new KeyWatchers(events);
    this.models = new ModelList(routing, billing);
    this.responses = new StoredResponses({ db, clock, log, conversations, isShared });
  }

  get callsInFlight(): number {
    return this.#watch.count;
  }

  speak(voice: Voice, route: Pick<VoiceRoute, "answer">, call: KeyedCall): Promise<CallReply> {
    if (!route.answer) return this.#counted(this.#speak(voice, call), call);
    return route.answer(call.body).then((answer) => jsonReplyIn(voice, answer, call.requestId));
  }

  async #speak(voice: Voice, call: KeyedCall): Promise<CallReply> {
    const { request: client, requestId } = call;
    const asker = this.#askerOf(call);
    const read = await voice.read(call.body, this.#reading(call));
    if ("answer" in read) return jsonReplyIn(voice, read.answer, requestId);
    const reply = new VoicedReply(voice, read, requestId, this.#replyOptions);
    const { listener } = reply;
    const parts = this.#partsOf(call);
    const common = { asker, client, isConversation: false, listener };
    if ("native" in read && this.#passesAsItIs(read.native)) {
      const headersLike = (names: RegExp) => client.headersLike(names);
      const native = { ...read.native, headersLike, chat: () => reply.chat.payload };
      return reply.to(await ChatTurn.open(parts, { ...common, payload: native.payload, native }));
    }
    const { payload, form } = reply.chat;
    return reply.to(await ChatTurn.open(parts, { ...common, payload, form }));
  }

  /** Whether a backend of the model speaks the dialect, and the request uses nothing that only chats have. */
  #passesAsItIs({ payload, model, dialect }: NativeRead["native"]): boolean {
    const isForChats = payload.value("memory") === true || payload.value("conversation_id") != null;
    return !isForChats && !payload.has("extra") && this.options.routing.speaks(model, dialect);
  }

  /** `POST /v1/embeddings`, or another API's request for vectors that `read` translates. */
  embeddings(call: KeyedCall, read: EmbeddingsReader = readBytes): Promise<CallReply> {
    const { request: client, body } = call;
    const asker = this.#askerOf(call);
    const embedded = async () => embed(this.#partsOf(call), { asker, client, ...(await read(body)) });
    return this.#counted(embedded(), call);
  }

  work(kind: WorkKind, call: KeyedCall): Promise<CallReply> {
    const { request: client, body } = call;
    const contentType = client.header("content-type");
    const asker = this.#askerOf(call);
    const serving = serveWork(this.#parts, { kind, asker, body, contentType, client });
    return this.#counted(serving, call);
  }

  /** One line of a batch: the whole answer, or the refusal in its API's form. */
  async line(path: string, call: LineCall): Promise<Reply> {
    const voice = voices.find(({ routes }) => Object.values(routes).some((route) => route.path === path));
    try {
      const answer = await (voice ? this.#counted(this.#speak(voice, call), call) : this.embeddings(call));
      return answer instanceof Reply ? answer : fail("invalid_params", "`stream`: a batch has no streams");
    } catch (error) {
      if (call.line.background.isDry) return toRestReply(toServiceError(error), call.requestId);
      return this.refuse(error, call, voice && { form: voice, isRequest: true });
    }
  }

  #partsOf({ line }: KeyedCall): ChatParts {
    return line ? { ...this.#parts, metering: line.metering } : this.#parts;
  }

  #askerOf({ principal, request, requestId, record, line }: KeyedCall): Asker {
    const traceparent = this.options.tracer.enabled ? request.header("traceparent") : null;
    const payer = payerOf(principal);
    if (principal.captureUntilMs !== 0 && record && principal.captureUntilMs > this.options.clock.now())
      record.addDetails({ capture: { asked: null, answered: null } });
    return {
      requestId,
      payer,
      rules: principal,
      refId: refOf(request),
      channel: "gateway",
      traceparent,
      record,
      session: () => sessionHeader((name) => request.header(name)),
      background: line?.background,
    };
  }

  async #counted(work: Promise<CallReply>, { principal, requestId }: KeyedCall): Promise<CallReply> {
    try {
      const answer = await work;
      this.options.countRequest();
      this.#watchers.answered(principal);
      return answer;
    } catch (error) {
      if (!isAboutClient(error)) throw error;
      this.options.countRequest();
      return new Reply({ status: CLIENT_CLOSED_STATUS, contentType: "", requestId }, "");
    }
  }

  /** Counts a failure, even one from before the handler ran, notifies the key's watchers and answers in the API's form. */
  refuse(
    error: unknown,
    { request, requestId, principal }: Pick<RefusedCall, "requestId" | "principal"> & Headed,
    { form, isRequest }: { form: Form; isRequest: boolean } = OWN,
  ): Reply {
    const refusal = toServiceError(error);
    if (refusal instanceof KeyRefusal && !(refusal instanceof TooManyKeys)) {
      const { status } = ERRORS[refusal.kind];
      const isExpired = refusal.rest?.limit === "expires_at";
      const message = refusal.message.trim();
      const reason = isExpired ? { ...BAD_KEY, message } : BAD_KEY;
      const secret = bearerOf(request) ?? (form.keyHeader && request.header(form.keyHeader)) ?? "";
      if (status === 401) this.#watchers.unknown(secret, { status, ...reason });
      this.#parts.observer.refused(status);
      if (!form.errorBody) return toRestReply(refusal, requestId);
      if (status === 401 && isRequest) {
        const shown = isExpired ? new ServiceError("auth_required", message) : INVALID_KEY;
        return this.#inForm(form, shown, requestId);
      }
      const failure = { status, message, type: "invalid_request", code: null };
      return refusalIn(form, toRestReply(refusal, requestId), failure);
    }
    if (principal) {
      if (isRequest) this.options.countRequest();
      this.#watchers.refused(principal, refusal);
      this.#count(refusal);
    }
    const said = nativeRefusal(refusal, requestId);
    if (said) return said;
    // Client libraries retry a 502, but the upstream would refuse the same request again.
    const headers = isFinal(error) ? { "x-should-retry": "false" } : {};
    return this.#inForm(form, this.#toClientError(form, refusal), requestId, headers);
  }

  #toClientError(form: Form, failure: ServiceError): ServiceError {
    const isWrapped = form.wrapsUpstreamErrors && !this.options.passesUpstreamErrors;
    return isWrapped ? failure : asUpstreamSaid(failure);
  }

  #inForm(form: Form, refusal: ServiceError, requestId: string, headers = {}): Reply {
    return refusalIn(form, toRestReply(refusal, requestId, headers), failureOf(refusal));
  }

  /** Upstream failures are already counted as outcomes of calls. */
  #count({ cause, kind }: ServiceError): void {
    if (!(cause instanceof BackendError)) this.#parts.observer.refused(ERRORS[kind].status);
  }

  async send(actor: Actor, body: Record<string, unknown>, record: RequestRecord | null) {
    this.options.countRequest();
    // The calls of one RPC batch share an id, but usage is counted once per id.
    const requestId = record?.id ?? this.options.ids.ordered();
    try {
      return await this.#sender.send({ actor, requestId, body, record });
    } catch (error) {
      this.#count(toServiceError(error));
      throw error;
    }
  }

  /** `chat.stop`: what was delivered so far is metered. */
  stop(actor: Actor, streamId: string): void {
    this.options.events.stop(streamId, actor.userId);
  }

  /** `engine.invoke`: passes method and params unchanged and returns the raw result. */
  async invoke(asked: { model: string; method: string; params?: Record<string, unknown> }): Promise<unknown> {
    const { model, method, params } = asked;
    const { routing } = this.options;
    const route = await routing.router.acquire({
      model: routing.aliases.resolve(model),
      capability: "invoke",
    });
    const expiry = AbortSignal.timeout(INVOKE_TIMEOUT_MS);
    try {
      if (!route.backend.invoke) fail("backend_error", "the backend does not support generic invocation");
      const result = await route.backend.invoke(method, params, expiry);
      route.succeeded();
      return result;
    } catch (error) {
      // The engine's own error concerns this method only and must not open the circuit for chats.
      if (error instanceof BackendError && error.kind === "upstream") route.succeeded();
      else reportTo(route, error);
      throw toFailure(error);
    }
  }

  /** What a voice may use while it reads a request. */
  #reading(call: KeyedCall): RequestContext {
    const { clock, routing, storesResponses } = this.options;
    const { requestId, principal } = call;
    return {
      requestId,
      now: () => clock.now(),
      isSpoken: (dialect) => routing.isSpoken(dialect),
      requireModel: (model) => void this.models.ollamaOne(model),
      whileHeld: (payload, work) => {
        const asked = { asker: this.#askerOf(call), payload, capability: "chat" } as const;
        const fields = { ...readWorkFields(payload), spend: payload.spendFields() };
        return UpstreamCall.whileHeld(this.#parts, { ...asked, ...fields, send: () => undefined }, work);
      },
      responses: () => (storesResponses ? this.responses.of(principal, requestId) : null),
    };
  }

  async close(): Promise<void> {
    await this.#watch.close();
    await this.responses.close();
  }
}

function refOf(request: Headed["request"]): string | null {
  const ref = textOfHeader(request.header("x-service-ref") ?? "");
  if (ref.length > REF_LENGTH_MAX)
    fail("missing_fields", `The header x-service-ref may have at most ${REF_LENGTH_MAX} characters`);
  return ref || null;
}

type KeyHolder = Pick<Principal, "keyId" | "userId">;

/** Reports a key's first success and its refusals on the key's own channel, for people setting up a client. */
class KeyWatchers {
  readonly #notified = new BoundedMap<string, true>();
  constructor(readonly events: EventHub) {}

  answered({ keyId, userId }: KeyHolder): void {
    if (this.#notified.get(keyId)) return;
    this.#notified.set(keyId, true);
    this.events.notifyUser(userId, keyId, keyRequest, { key_id: keyId, ok: true });
  }

  refused({ keyId, userId }: KeyHolder, { kind, message }: ServiceError): void {
    const { status, code } = ERRORS[kind];
    const news = { key_id: keyId, ok: false as const, status, code, message };
    this.events.notifyUser(userId, keyId, keyRequest, news);
  }

  /** Reports an unknown key to watchers of a key with the same prefix: most are copying mistakes. */
  unknown(secret: string, refusal: { status: number; code: string; message: string }): void {
    const prefix = prefixOf(secret);
    if (prefix !== null)
      this.events.notify(`key-${prefix}`, keyRequest, { key_id: null, ok: false, ...refusal });
  }
}
