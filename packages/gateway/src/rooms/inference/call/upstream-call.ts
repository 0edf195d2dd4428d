import type { HttpRequest } from "@model-gateway/wire/http";
import {
  type Answer,
  type Backend,
  BackendError,
  type ChatCall,
  isOverloaded,
  isUnsent,
  type JsonBody,
  type NativeCall,
  type PostCall,
} from "../../../backends/contract.ts";
import type { SessionOf } from "../../../kernel/affinity.ts";
import type { Payer } from "../../../kernel/payer.ts";
import { CLIENT_LEFT, type RequestRecord } from "../../../kernel/request-record.ts";
import { LARGE_BODY_BYTES, nextTurn } from "../../../kernel/turns.ts";
import type { ModelLimits, UnitPrice, WorkUnit } from "../../billing/index.ts";
import { type ModelTerms, modelRefusal } from "../../keys/index.ts";
import type { Admission, Metering } from "../../metering/index.ts";
import {
  type Background,
  type QueuePlace,
  type Route,
  type RoutePlan,
  type Routing,
  reportTo,
} from "../../routing/index.ts";
import type { SpendFields } from "../request/fields.ts";
import type { NativeRequest, Payload } from "../request/payload.ts";
import type { AskedWork } from "./cost.ts";
import { type CallEnd, NOTHING_CAME, owedFor, problemsIn } from "./cost.ts";
import { type CallWatch, isAboutClient, type WatchedCall } from "./deadlines.ts";
import { mayFallBack, toFailure } from "./failures.ts";
import type { CallObserver, ObservedCall, Operation } from "./observer.ts";
import { Outgoing } from "./outgoing.ts";
import { sessionOf } from "./session.ts";
import { ABSURD, type ReportedUsage, readUsage } from "./usage-tail.ts";

/** The first attempt, and one on another backend if the first could not be reached. */
const ATTEMPTS_MAX = 2;
const IDEMPOTENCY = "idempotency-key";

type Headers = Readonly<Record<string, string>>;

/** The client that waits for the answer and may disconnect. */
export type Client = Pick<HttpRequest, "signal" | "whenGone">;

/** Who asks, who pays, and where usage is attributed. */
export interface Asker {
  requestId: string;
  payer: Payer;
  /** Which models the key may use; null without one. */
  rules: ModelTerms | null;
  refId: string | null;
  channel: "gateway" | "rpc";
  traceparent: string | null;
  record: RequestRecord | null;
  /** As the client's headers name it. */
  session?: SessionOf;
  background?: Background;
}

export interface CallParts {
  routing: Routing;
  metering: Pick<Metering, "admit" | "written">;
  /** Known limits of a model's context and output. */
  limitsOf(model: string): ModelLimits;
  /** The price of work that is counted in these units; null when it is priced by the token, or not at all. */
  unitPriceOf(route: Pick<Route, "model" | "isOwn">, units: readonly WorkUnit[]): UnitPrice | null;
  watch: CallWatch;
  observer: CallObserver;
}

export interface UpstreamCallOptions {
  asker: Asker;
  payload: Payload;
  capability: Operation;
  model: string;
  provider: string | null;
  /** The conversation's backend; null: it has none yet; absent: there is no conversation. */
  boundTo?: string | null;
  spend?: SpendFields;
  /** Set if the payload is in a vendor's dialect that the backend may speak. */
  native?: NativeRequest;
  /** Fields to set in what is sent, besides the model. */
  set?: ReadonlyMap<string, string>;
  /** Builds the fields to set from stored data; runs only once the payer can cover what was sent. */
  prepare?(): Promise<ReadonlyMap<string, string> | undefined>;
  stream?: boolean;
  /** Fields that limit the answer; absent: those that the backend's kind honours in a chat. */
  limitFields?: readonly string[];
  /** For work other than chats and vectors: the most that it may use. */
  work?: AskedWork;
  /** Throws if this backend must not be sent the request. */
  requireOn?(route: Route): void;
  contentType?: string;
  send(backend: Backend, call: ChatCall & PostCall): Promise<Answer> | undefined;
}

/** One admitted request on its way to a backend: routed, paid for, timed, and retried once elsewhere if needed. */
export class UpstreamCall {
  readonly watched: WatchedCall;
  readonly observed: ObservedCall;
  readonly #tried: Route[] = [];
  /** Whether the latest attempt may have reached its backend. */
  #isSent = false;
  /** Why the latest attempt broke; null once an answer came. */
  #failure: string | null = null;
  /** Ended on our side: client gone, key revoked, deadline passed, answer larger than we read, or shutdown. */
  #isEndedHere = false;
  /** Usage that the upstream reported together with a failure. */
  #failureUsage: ReportedUsage | null = null;
  #isSettled = false;
  #cancelBegin: (() => void) | null = null;

  private constructor(
    readonly parts: CallParts,
    readonly options: UpstreamCallOptions,
    public outgoing: Outgoing,
    public admission: Admission,
    /** The fallback targets of a model route. */
    readonly plan: RoutePlan | null,
    readonly session: SessionOf | undefined,
    /** Its place in the queue of waiting calls. */
    readonly turn: Partial<QueuePlace>,
  ) {
    this.watched = parts.watch.open(options.asker.payer);
    const { model, name: backend } = outgoing.route;
    const { capability: operation, asker } = options;
    this.observed = parts.observer.begin({ operation, model, backend, asker });
  }

  /** Chooses a backend and passes admission, or throws. */
  static async admit(parts: CallParts, options: UpstreamCallOptions): Promise<UpstreamCall> {
    const { payer } = options.asker;
    let route: Route | null = null;
    parts.watch.enter(payer);
    try {
      const on = await chosen(parts, options);
      route = on.route;
      return await UpstreamCall.#admitOn(on, parts, options);
    } catch (error) {
      // Gives the place at the backend back: the request will not be sent there.
      route?.abandoned();
      parts.watch.left(payer);
      throw error;
    }
  }

  /** Runs `work`, such as reading stored history, only if the payer can cover what was sent. */
  static async whileHeld<T>(
    parts: CallParts,
    asked: UpstreamCallOptions,
    work: () => Promise<T>,
  ): Promise<T> {
    const { payer } = asked.asker;
    parts.watch.enter(payer);
    try {
      const on = await chosen(parts, asked, { isForeseen: true });
      return await whileHeld(parts, asked, on, work).finally(() => on.route.abandoned());
    } finally {
      parts.watch.left(payer);
    }
  }

  static async #admitOn(on: Chosen, parts: CallParts, asked: UpstreamCallOptions): Promise<UpstreamCall> {
    const { plan, session, turn } = on;
    const { prepare } = asked;
    const options = prepare ? { ...asked, set: await whileHeld(parts, asked, on, prepare) } : asked;
    // Assembling the history took a while.
    if (prepare) await nextTurn();
    const outgoing = outgoingOn(parts, options, on);
    // Composing, counting and sending a large body each take a while.
    const isLarge = outgoing.body().size() > LARGE_BODY_BYTES;
    if (isLarge) {
      await nextTurn();
      outgoing.body().bytes();
      await nextTurn();
    }
    const admission = await holdFor(parts, options, outgoing);
    if (isLarge) await nextTurn();
    return new UpstreamCall(parts, options, outgoing, admission, plan, session, turn);
  }

  get route(): Route {
    return this.outgoing.route;
  }

  /** The upstream's 2xx answer; when it fails, `fallBack` says what comes next. */
  send(): Promise<Answer> {
    this.#failure = this.#failureUsage = null;
    this.#isSent = false;
    if (this.plan) this.#limitBegin(this.plan);
    const { route, options } = this;
    // A client that left before anything was sent owes nothing.
    if (this.watched.isAborted) return Promise.reject(this.watched.reason);
    this.#tried.push(route);
    this.#isSent = true;
    options.asker.record?.sent(route);
    this.admission.sent();
    const call = new OutgoingCall(this, this.outgoing.body());
    const { spoken } = this.outgoing;
    const answer = spoken ? spoken.post(call) : options.send(route.backend, call);
    return (
      answer ??
      Promise.reject(new BackendError("unsupported", `the backend does not support ${options.capability}`))
    );
  }

  /** While a model route has another target, this one must begin within a set time. */
  #limitBegin({ beginWithinMs, hasNext }: RoutePlan): void {
    if (beginWithinMs === null || !hasNext) return;
    const late = `the upstream has not begun to answer within ${beginWithinMs} ms`;
    this.#cancelBegin = this.parts.watch.options.clock.after(beginWithinMs, () => {
      this.#noteGivenUp();
      this.watched.giveUpAttempt(new BackendError("transport", late));
    });
  }

  /** The vendor may still bill this attempt. The client asked for one answer, so only the operator is told. */
  #noteGivenUp(): void {
    const circumstances = { isOwedUnanswered: true, writtenTokens: this.admission.writtenTokens() };
    this.admission.givenUp(
      owedFor(this.#withFailureUsage(NOTHING_CAME), this.outgoing.bound, circumstances)!,
    );
    this.#failureUsage = null;
  }

  begun(): void {
    this.#cancelBegin?.();
    this.route.begun();
  }

  /** The call broke before the client got anything. Null: moved to another backend; otherwise the error to report. */
  async fallBack(error: unknown): Promise<unknown> {
    this.#cancelBegin?.();
    this.failed(error);
    if (this.watched.isAborted) return this.watched.reason;
    if (this.#isSettled) return error;
    let next: Route | null | false = null;
    try {
      next = this.plan ? mayFallBack(error) && this.plan.next() : await this.#another(error);
      if (!next) return error;
      if (this.#failureUsage !== null) this.#noteGivenUp();
      await this.#moveTo(next);
      return null;
    } catch (refusal) {
      if (next) next.abandoned();
      return refusal;
    }
  }

  /** Repeats `once` on each backend until one answers; otherwise settles and throws. */
  async untilAnswered<T>(once: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await once();
      } catch (error) {
        await this.elsewhere(error);
      }
    }
  }

  /** The call broke: returns if it can be sent again, otherwise settles it and throws. */
  async elsewhere(error: unknown): Promise<void> {
    const failure = await this.fallBack(error);
    if (failure === null) return;
    this.settle();
    throw this.toClientError(failure);
  }

  /** The failure as the caller sees it, with headers that name the backend. */
  toClientError(error: unknown): unknown {
    return toFailure(error, this.#tried.length > 0 ? this.answerHeaders() : {});
  }

  /** Headers that name the backend and the number of attempts. */
  answerHeaders(base: Headers = {}): Headers {
    return {
      ...base,
      // Backend names may contain any character; headers may not.
      "x-service-backend": encodeURIComponent(this.route.name),
      "x-service-attempts": String(this.#tried.length),
    };
  }

  /** Another model has another price, so the hold is taken anew. */
  async #moveTo(next: Route): Promise<void> {
    const { parts, options } = this;
    if (this.outgoing.isSameOn(next)) {
      this.outgoing.route = next;
      return;
    }
    const outgoing = outgoingOn(parts, options, { model: this.outgoing.model, route: next });
    this.admission.release();
    this.admission = await holdFor(parts, options, outgoing);
    this.outgoing = outgoing;
  }

  /** A replacement for a backend that is unreachable or overloaded. If all are full, waits for the first free slot. */
  #another(error: unknown): Route | Promise<Route> | null {
    if (!(error instanceof BackendError) || this.#tried.length >= ATTEMPTS_MAX) return null;
    if (!isUnsent(error) && !isOverloaded(error)) return null;
    const { capability, provider, boundTo, asker } = this.options;
    const { session, turn } = this;
    const { payer, background } = asker;
    const { router } = this.parts.routing;
    const asked = { capability, provider, boundTo, payer, session, turn, background };
    const request = { ...asked, model: this.outgoing.model, exclude: this.#tried };
    if (error.kind === "busy") return router.acquire(request);
    try {
      return router.choose(request);
    } catch {
      return null;
    }
  }

  /** Reports the failure to the circuit breaker, unless the client caused it. */
  failed(error: unknown): void {
    if (isUnsent(error)) this.unsent();
    if (error instanceof BackendError && error.kind === "busy" && !this.plan) {
      this.#tried.pop();
      this.options.asker.record?.waitsAgain();
    }
    const reason = this.watched.isAborted ? this.watched.reason : error;
    const left = isAboutClient(reason);
    const isTooLarge = reason instanceof BackendError && reason.kind === "too_large";
    this.#isEndedHere = this.watched.isAborted || left || isTooLarge;
    const told = reason instanceof BackendError ? readUsage(reason.usage) : null;
    this.#failureUsage = told === ABSURD ? null : told;
    this.#failure = left ? CLIENT_LEFT.code : reason instanceof BackendError ? reason.kind : "internal";
    this.observed.broke(reason);
    if (left) this.route.abandoned();
    else reportTo(this.route, reason);
  }

  /** Usage reported with a failure covers everything the upstream did. */
  #withFailureUsage(end: CallEnd): CallEnd {
    return this.#failureUsage === null ? end : { ...end, isWhole: true, reported: this.#failureUsage };
  }

  settle(ending: CallEnd = NOTHING_CAME): ReportedUsage | null {
    const end = this.#withFailureUsage(ending);
    this.#isSettled = true;
    this.parts.watch.release(this.watched);
    const isOwedUnanswered = this.#isEndedHere && this.#isSent;
    const isCut = this.#failure !== null || end.isStopped;
    const writtenTokens = isCut ? this.admission.writtenTokens() : 0;
    const owed = owedFor(end, this.outgoing.bound, { isOwedUnanswered, writtenTokens });
    let costNanoUsd: number | null = null;
    if (owed === null) this.admission.release();
    else {
      const { isEstimated: estimated } = owed;
      const isBelieved = !estimated && this.route.entry.config.believe_cost;
      const reportedUsd = isBelieved ? owed.reportedUsd : undefined;
      const toolsUsd = this.outgoing.tools?.usdOf(this.outgoing.spoken ? (end.toolCalls ?? []) : null);
      const usage = { ...owed, backend: this.options.asker.channel, estimated, toolsUsd, reportedUsd };
      costNanoUsd = this.admission.settle(usage, this.observed.outcome(this.#failure));
      for (const problem of problemsIn(end, owed, this.outgoing))
        this.parts.routing.suspect(this.route, problem, this.options.asker.requestId);
    }
    this.observed.end({ failure: this.#failure, usage: owed, costNanoUsd, attempts: this.#tried.length });
    return owed;
  }

  /** The latest attempt ended before its connection was established. */
  unsent(): void {
    this.#isSent = false;
  }
}

/** Chooses the backend. `isForeseen`: the same request will be routed a second time. */
async function chosen({ routing }: CallParts, asked: UpstreamCallOptions, { isForeseen = false } = {}) {
  const { asker, capability, provider, boundTo } = asked;
  if (asker.record) {
    asker.record.modelAsked = asked.model;
    if (asker.refId !== null) asker.record.addDetails({ refId: asker.refId });
  }
  const model = routing.aliases.resolve(asked.model);
  const session = sessionOf(asked);
  const turn: Partial<QueuePlace> = {};
  const { payer, background } = asker;
  const request = { capability, provider, boundTo, payer, session, turn, isForeseen, background };
  const plan = routing.plan(model, request, (name) => modelRefusal(asker.rules, name));
  const route = await (plan?.first() ?? routing.router.acquire({ ...request, model }));
  return { model, route, plan, session, turn };
}
type Chosen = Awaited<ReturnType<typeof chosen>>;

/** The request as sent to this backend, with its bound at the price of the backend's model. */
function outgoingOn(
  parts: CallParts,
  options: UpstreamCallOptions,
  { model, route }: { model: string; route: Route },
): Outgoing {
  const { work } = options;
  const price = work ? parts.unitPriceOf(route, work.units) : null;
  return new Outgoing(options, model, route, { limits: parts.limitsOf(route.model), price });
}

/** Holds what the request can cost on its backend, or throws; limits the answer to what is held. */
async function holdFor(
  { metering }: CallParts,
  { asker: { requestId, payer, refId, record }, requireOn }: UpstreamCallOptions,
  outgoing: Outgoing,
): Promise<Admission> {
  const { route, demanded: bound } = outgoing;
  requireOn?.(route);
  const { model, isOwn } = route;
  const admission = await metering.admit({ requestId, payer, model, isOwn, bound, refId, record });
  if (admission.lowered) outgoing.lower(admission.outputTokensHeld);
  return admission;
}

/** Holds the cost of what was sent while `work` adds what is stored. */
async function whileHeld<T>(
  parts: CallParts,
  options: UpstreamCallOptions,
  on: { model: string; route: Route },
  work: () => Promise<T>,
): Promise<T> {
  const admission = await holdFor(parts, options, outgoingOn(parts, options, on));
  try {
    return await work();
  } finally {
    admission.release();
  }
}

class OutgoingCall implements NativeCall, PostCall {
  readonly model: string;
  readonly requestId: string;
  readonly scope: string;
  readonly session?: SessionOf;
  readonly stream: boolean;
  readonly contentType?: string;
  readonly #call: UpstreamCall;

  constructor(
    call: UpstreamCall,
    readonly body: JsonBody,
  ) {
    const { route, options } = call;
    this.model = route.model;
    this.requestId = options.asker.requestId;
    const { keyId, userId } = options.asker.payer;
    this.scope = keyId ?? userId;
    this.session = call.session;
    this.stream = options.stream ?? false;
    this.contentType = options.contentType;
    this.#call = call;
  }

  get headers(): Record<string, string> {
    const { outgoing, options } = this.#call;
    const headers = outgoing.spoken ? options.native!.headersLike(outgoing.spoken.requestHeaders) : {};
    const { [IDEMPOTENCY]: given } = headers;
    // The vendor sees all our users as one, so the key is scoped: another user's equal key must not return this answer.
    return given ? { ...headers, [IDEMPOTENCY]: Bun.SHA256.hash(`${this.scope} ${given}`, "hex") } : headers;
  }
  get signal(): AbortSignal {
    return this.#call.watched.signal;
  }
  whenAborted(run: (reason: unknown) => void): void {
    this.#call.watched.whenAborted(run);
  }
  unsent(): void {
    this.#call.unsent();
  }
}
