import { limitFieldsOf, type NativeDialect } from "../../../backends/contract.ts";
import type { ModelLimits, UnitPrice } from "../../billing/index.ts";
import type { Bound } from "../../metering/index.ts";
import type { Route } from "../../routing/index.ts";
import { type ComposedBody, mentionsMedia, type Payload } from "../request/payload.ts";
import { VendorTools, vendorToolsIn } from "../request/vendor-side.ts";
import { ChatBound, EmbeddingsBound, WorkBound } from "./cost.ts";
import type { UpstreamCallOptions } from "./upstream-call.ts";
import type { ReportedUsage } from "./usage-tail.ts";

const NOTHING: ReadonlyMap<string, string> = new Map();

type OutgoingOptions = Pick<
  UpstreamCallOptions,
  "payload" | "model" | "set" | "spend" | "native" | "limitFields" | "work"
>;

/** Identifies what may be sent to a backend, at which price, and how long an answer can be there. */
function rulesOf({ isOwn, backend, model }: Route, limitMin: number): string {
  const { config, writesOne } = backend;
  const lengths = [limitFieldsOf(backend, model), backend.usualOutputTokens?.(model), limitMin];
  return JSON.stringify([isOwn, writesOne, config.fields, config.tool_prices, config.shared_files, lengths]);
}

/** The request as it is sent to the chosen backend, and the cost bound that follows from it. */
export class Outgoing {
  readonly bound: ChatBound | EmbeddingsBound | WorkBound;
  readonly limits: ModelLimits;
  /** Set for a chat with tools that the vendor runs and bills. */
  readonly tools: VendorTools | null;
  /** The limit on each choice when the payer cannot cover more. */
  loweredTo: number | null = null;
  /** The backend's dialect in which the request passes verbatim; null: it is sent as a chat. */
  get spoken(): NativeDialect | null {
    return this.#dialectOn(this.route);
  }
  readonly #payload: Payload;
  #composed: { route: Route; body: ComposedBody } | null = null;

  constructor(
    readonly options: OutgoingOptions,
    readonly model: string,
    /** Changes when another backend is tried. */
    public route: Route,
    { limits, price }: { limits: ModelLimits; price: UnitPrice | null },
  ) {
    const { native, set, work } = options;
    const isTranslated = native !== undefined && this.spoken === null;
    const payload = isTranslated ? native.chat() : options.payload;
    const spend = isTranslated ? payload.spendFields() : options.spend;
    this.#payload = payload;
    this.limits = limits;
    const tools = spend && !route.isOwn ? vendorToolsIn(payload) : [];
    this.tools = tools.length > 0 ? new VendorTools(tools, route.backend.config.tool_prices) : null;
    const mayHaveMedia = payload.mayHaveMedia || mentionsMedia(set?.get("messages") ?? "");
    if (work) this.bound = new WorkBound({ asked: work, price, body: this });
    else if (spend)
      this.bound = new ChatBound({
        body: this,
        payload,
        mayHaveMedia,
        spend,
        // Of the vendors' own APIs only Gemini's writes several answers.
        answers: (this.spoken ? native?.dialect !== "gemini" : route.backend.writesOne) ? 1 : spend.answers,
        tools: this.tools,
        usualTokens: limits.outputTokensMax ?? route.backend.usualOutputTokens?.(route.model),
        contextTokens: limits.contextTokens,
        honoured: this.#honoured,
        limitMin: this.#limitMinOn(route),
      });
    else this.bound = new EmbeddingsBound(this, payload);
  }

  /** What has to be held: dollars if the price is not per token. */
  get demanded(): Bound {
    const { bound } = this;
    return bound instanceof WorkBound && bound.mostUsd !== null ? { costUsd: bound.mostUsd } : bound;
  }

  #dialectOn({ backend }: Route): NativeDialect | null {
    const { native } = this.options;
    return native ? (backend.native?.get(native.dialect) ?? null) : null;
  }

  /** Whether the next route would be sent the same bytes. */
  isSameOn(next: Route): boolean {
    return (
      next.model === this.route.model &&
      (this.#dialectOn(next) === null) === (this.spoken === null) &&
      rulesOf(next, this.#limitMinOn(next)) === rulesOf(this.route, this.#limitMinOn(this.route))
    );
  }

  /** Text completions are never translated. */
  #limitMinOn(route: Route): number {
    const spoken = this.#dialectOn(route);
    if (spoken) return spoken.limitMin ?? 0;
    const { backend, model } = route;
    const { isMade } = this.#payload;
    const names = ["tools", "reasoning_effort"];
    const object = () => Object.fromEntries(names.map((name) => [name, this.#payload.sent(name)]));
    return this.options.limitFields ? 0 : (backend.limitMin?.(model, { isMade, object }) ?? 0);
  }

  /** The fields that limit the answer on this backend. */
  get #honoured(): readonly string[] {
    if (this.spoken) return [this.spoken.limitField];
    return this.options.limitFields ?? limitFieldsOf(this.route.backend, this.route.model);
  }

  body(): ComposedBody {
    if (this.#composed?.route !== this.route) {
      this.#composed = { route: this.route, body: this.#payload.compose(this.#set()) };
    }
    return this.#composed.body;
  }

  bytes(): Buffer {
    return this.body().bytes();
  }

  /** A client's own chat keeps its field names; in a translated request we use the limit field that the model wants. */
  #set(): ReadonlyMap<string, string> {
    const set = this.#changed();
    const payload = this.#payload;
    const [field] = this.#honoured;
    if (!payload.isMade || field !== "max_completion_tokens") return set;
    if (!payload.has("max_tokens") || payload.sent(field) !== undefined) return set;
    const limit = set.get(field) ?? set.get("max_tokens") ?? String(payload.value("max_tokens"));
    return new Map([...set, [field, limit], ["max_tokens", ""]]);
  }

  #changed(): ReadonlyMap<string, string> {
    const { model: written, set = NOTHING, native } = this.options;
    const { route, loweredTo } = this;
    const payload = this.#payload;
    const mended = this.spoken?.mended(payload, route.model) ?? [];
    if (written === route.model && loweredTo === null && mended.length === 0) return set;
    const own = new Map([...set, ...mended]);
    // Some dialects have the model in the path.
    if (written !== route.model && payload.has("model")) own.set("model", JSON.stringify(route.model));
    if (loweredTo === null || !(this.bound instanceof ChatBound)) return own;
    const lowered = this.bound.lowered(loweredTo, this.#honoured);
    // Do not add fields to a vendor's own API; lower only those that the client used, in case the vendor obeys them.
    for (const [name, json] of lowered) if (!this.spoken || payload.has(name)) own.set(name, json);
    if (!this.spoken || !native) return own;
    const limited = native.limited(Number(lowered.get(this.spoken.limitField)));
    return new Map([...own, ...limited]);
  }

  lower(outputTokens: number): void {
    if (!(this.bound instanceof ChatBound)) return;
    this.loweredTo = this.bound.perChoice(outputTokens);
    this.#composed = null;
  }

  /** Whether a limit was sent in a field that the backend honours. */
  get isLimitSent(): boolean {
    return this.loweredTo !== null || (this.bound instanceof ChatBound && this.bound.isLimitSent);
  }

  /** Why the reported usage of a whole answer is implausible; null when it is plausible. */
  implausible({ promptTokens, completionTokens }: ReportedUsage): string | null {
    const { contextTokens } = this.limits;
    if (contextTokens !== null && promptTokens > contextTokens)
      return `${promptTokens} prompt tokens, more than the model's context window of ${contextTokens}`;
    const outputTokensMax = this.bound instanceof ChatBound ? this.bound.limitSentFor(this.loweredTo) : null;
    if (outputTokensMax !== null && completionTokens > outputTokensMax)
      return `${completionTokens} output tokens, more than the limit of ${outputTokensMax} that it was given`;
    return null;
  }
}
