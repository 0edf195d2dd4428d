import {
  type Answer,
  type Backend,
  BackendError,
  type ChatCall,
  type JsonBody,
} from "../../backends/contract.ts";
import { fail } from "../../kernel/errors.ts";
import type { Payer } from "../../kernel/payer.ts";
import { type ModelRules, modelAllowed } from "../groups/index.ts";
import { type Admission, estimatePromptTokens, type Metering } from "../metering/index.ts";
import type { Route, Routing } from "../routing/index.ts";
import { type CallWatch, isAboutClient, type WatchedCall } from "./deadlines.ts";
import { reportTo } from "./failures.ts";
import { type CallObserver, CLIENT_LEFT_OUTCOME, type ObservedCall } from "./observer.ts";
import type { Payload } from "./payload.ts";
import type { ReportedUsage } from "./usage-tail.ts";

const BYTES_PER_TOKEN = 4;
/** What a request without a limit of its own is held for; what it really costs is settled at its end. */
const COMPLETION_TOKENS_HELD = 1_024;
/** The first, and one on another backend where the first could not be reached. */
const ATTEMPTS_MAX = 2;

/** Who asks, who pays, and where usage is attributed. */
export interface Asker {
  requestId: string;
  payer: Payer;
  /** Rules of the group whose key it is. */
  rules: ModelRules | null;
  refId: string | null;
  /** `backend` of the usage row. */
  channel: "gateway" | "rpc";
  /** W3C header of the client's own trace. */
  traceparent: string | null;
}

export interface CallParts {
  routing: Routing;
  metering: Metering;
  watch: CallWatch;
  observer: CallObserver;
}

export interface UpstreamCallOptions {
  asker: Asker;
  payload: Payload;
  capability: "chat" | "embeddings";
  /** As the client wrote it. */
  model: string;
  provider: string | null;
  conversationId?: string | null;
  maxTokens?: number | null;
  /** Fields to set in what is sent, besides the model. */
  set?: ReadonlyMap<string, string>;
  stream?: boolean;
  /** Sends it: the capability's own function. */
  send(backend: Backend, call: ChatCall): Promise<Answer> | undefined;
}

/** One admitted request on its way to a backend: chosen, paid for, watched, and tried once elsewhere if need be. */
export class UpstreamCall {
  readonly watched: WatchedCall;
  readonly observed: ObservedCall;
  readonly #tried: Backend[] = [];
  /** Why the latest attempt broke; null once an answer came. */
  #failure: string | null = null;

  private constructor(
    readonly parts: CallParts,
    readonly options: UpstreamCallOptions,
    /** After alias resolution. */
    readonly model: string,
    public route: Route,
    readonly admission: Admission,
  ) {
    this.watched = parts.watch.open();
    const { requestId, channel, traceparent } = options.asker;
    this.observed = parts.observer.begin({
      operation: options.capability,
      model: route.model,
      backend: route.name,
      requestId,
      channel,
      traceparent,
    });
  }

  /** Chooses a backend and passes admission, or throws the refusal. Synchronous when admission is. */
  static admit(parts: CallParts, options: UpstreamCallOptions): UpstreamCall | Promise<UpstreamCall> {
    const { routing, metering } = parts;
    const { asker, payload, capability, provider, conversationId, maxTokens } = options;
    const model = routing.aliases.resolve(options.model);
    if (!modelAllowed(asker.rules, model)) {
      fail("model_not_allowed", `This key's group does not allow the model ${model}; ask a group admin`);
    }
    const route = routing.choose({ model, capability, provider, conversationId });
    const admitted = (admission: Admission) => new UpstreamCall(parts, options, model, route, admission);
    const refused = (error: unknown): never => {
      route.abandoned();
      throw error;
    };
    try {
      const { requestId, payer, refId } = asker;
      const promptTokens = estimatePromptTokens(payload.bytes);
      const completionTokensMax = capability === "chat" ? (maxTokens ?? COMPLETION_TOKENS_HELD) : 0;
      const bound = {
        promptTokens,
        outputTokensMax: completionTokensMax,
        outputTokensMin: completionTokensMax,
      };
      const admission = metering.admit({ requestId, payer, model: route.model, bound, refId });
      return admission instanceof Promise ? admission.then(admitted, refused) : admitted(admission);
    } catch (error) {
      return refused(error);
    }
  }

  /** The upstream's 2xx answer. A backend that cannot be reached at all is replaced once by another candidate. */
  send(): Promise<Answer> {
    this.#failure = null;
    return this.#dispatch().then(undefined, this.#again);
  }

  readonly #again = (error: unknown): Promise<Answer> => {
    this.failed(error);
    if (this.watched.isAborted) throw this.watched.reason;
    const isUnsent = error instanceof BackendError && error.kind === "connect";
    const next = isUnsent && this.#tried.length < ATTEMPTS_MAX ? this.#another() : null;
    if (!next) throw error;
    this.route = next;
    return this.send();
  };

  #dispatch(): Promise<Answer> {
    const { route, options } = this;
    this.#tried.push(route.backend);
    const answer = options.send(route.backend, new OutgoingCall(this, this.#body()));
    return (
      answer ??
      Promise.reject(new BackendError("unsupported", `the backend does not support ${options.capability}`))
    );
  }

  #body(): JsonBody {
    const { payload, model, set } = this.options;
    if (model === this.route.model) return payload.compose(set ?? NOTHING);
    return payload.compose(new Map([["model", JSON.stringify(this.route.model)], ...(set ?? NOTHING)]));
  }

  #another(): Route | null {
    const { capability, provider, conversationId } = this.options;
    try {
      return this.parts.routing.choose({
        model: this.model,
        capability,
        provider,
        conversationId,
        exclude: this.#tried,
      });
    } catch {
      return null;
    }
  }

  /** The call broke: tells the circuit, unless it is the client's doing. */
  failed(error: unknown): void {
    const reason = this.watched.isAborted ? this.watched.reason : error;
    const left = isAboutClient(reason);
    this.#failure = left ? CLIENT_LEFT_OUTCOME : reason instanceof BackendError ? reason.kind : "internal";
    this.observed.broke(reason, this.route.name);
    if (left) this.route.abandoned();
    else reportTo(this.route, reason);
  }

  /** Journals what is owed: as reported, else estimated from what was delivered; nothing for nothing. */
  settle(usage: ReportedUsage | null, deliveredBytes: number): ReportedUsage | null {
    this.parts.watch.release(this.watched);
    const owed = usage ?? (deliveredBytes > 0 ? this.#estimate(deliveredBytes) : null);
    this.observed.end({ failure: this.#failure, usage: owed, attempts: this.#tried.length });
    if (owed === null) this.admission.release();
    else {
      this.admission.settle({
        backend: this.options.asker.channel,
        promptTokens: owed.promptTokens,
        completionTokens: owed.completionTokens,
        estimated: usage === null,
      });
    }
    return owed;
  }

  #estimate(deliveredBytes: number): ReportedUsage {
    return {
      promptTokens: estimatePromptTokens(this.options.payload.bytes),
      completionTokens: this.options.capability === "chat" ? Math.ceil(deliveredBytes / BYTES_PER_TOKEN) : 0,
    };
  }
}

/** What a backend is handed. */
class OutgoingCall implements ChatCall {
  readonly model: string;
  readonly requestId: string;
  readonly stream: boolean;
  readonly #watched: WatchedCall;

  constructor(
    { route, options, watched }: UpstreamCall,
    readonly body: JsonBody,
  ) {
    this.model = route.model;
    this.requestId = options.asker.requestId;
    this.stream = options.stream ?? false;
    this.#watched = watched;
  }

  get signal(): AbortSignal {
    return this.#watched.signal;
  }
  whenAborted(run: (reason: unknown) => void): void {
    this.#watched.whenAborted(run);
  }
}

const NOTHING: ReadonlyMap<string, string> = new Map();
