import type { Clock } from "../../kernel/clock.ts";
import type { Outcome } from "../../kernel/request-record.ts";
import type { Billing } from "../billing/index.ts";
import type { Cover } from "./cover.ts";
import { heldFor, heldRates, TOKENS_MAX, within } from "./demand.ts";
import type { HoldKind } from "./journal/codec.ts";
import type { Paces } from "./paces.ts";
import type { AdmitOptions, FinalUsage } from "./types.ts";

type GivenUp = Pick<FinalUsage, "promptTokens" | "completionTokens" | "costUsd">;

export interface Admitting {
  billing: Pick<Billing, "pricing">;
  clock: Clock;
  paces: Paces;
  givenUp(options: AdmitOptions, usage: GivenUp): void;
  /** The hold is over; null: nothing is owed. Returns the price. */
  ended(admission: Admitted, owed: OwedRequest | null, kind: HoldKind): number | null;
}

export interface OwedRequest {
  usage: FinalUsage;
  outcome: Outcome | null;
}

/** One request that may spend, until it is settled or released. There is one for every request: no closures. */
export class Admitted {
  readonly lowered: boolean;
  #isEnded = false;
  #sentAtMs: number | null = null;

  constructor(
    readonly admitting: Admitting,
    readonly options: AdmitOptions,
    readonly cover: Cover,
  ) {
    const { bound } = options;
    this.lowered = "outputTokensMax" in bound && cover.tokens < within(bound.outputTokensMax, TOKENS_MAX);
  }

  /** Output tokens held for, over all choices. The caller lets the upstream write no more, or grows the hold first. */
  get outputTokensHeld(): number {
    return this.cover.tokens;
  }

  get isHeld(): boolean {
    return this.cover.isHeld;
  }

  /** Extends the hold to this total; false when it cannot grow. Points may move to the quota as a whole. */
  async grow(total: { promptTokens: number; completionTokens: number }): Promise<boolean> {
    if (this.#isEnded) return false;
    const { fixed } = heldFor(this.admitting.billing, this.options, total.promptTokens);
    return this.cover.grow({ fixed, tokens: within(total.completionTokens, TOKENS_MAX) });
  }

  sent(): void {
    this.#sentAtMs = this.admitting.clock.elapsed();
  }

  get #sinceSentMs(): number {
    return this.#sentAtMs === null ? 0 : this.admitting.clock.elapsed() - this.#sentAtMs;
  }

  get #answers(): number {
    const { bound } = this.options;
    return ("answers" in bound && bound.answers) || 1;
  }

  /** Output tokens that the model can have written by now, by its pace, at most what is held. Owed when cut short. */
  writtenTokens(): number {
    const { options, admitting, outputTokensHeld } = this;
    const { bound, model } = options;
    const most = ("perChoice" in bound && bound.perChoice?.(outputTokensHeld)) || outputTokensHeld;
    return Math.ceil(Math.min(most, admitting.paces.tokensIn(model, this.#sinceSentMs)) * this.#answers);
  }

  /** What an attempt may have cost that nobody is charged for: it counts in a metric. */
  givenUp(usage: GivenUp): void {
    this.admitting.givenUp(this.options, usage);
  }

  /** Journaled before more answers are sent; never throws. Returns nanodollars, or null. `outcome`: how it fails anyway. */
  settle(usage: FinalUsage, outcome: Outcome | null = null): number | null {
    const { options, admitting } = this;
    const tokens = usage.completionTokens / this.#answers;
    if (!usage.estimated && outcome === null && this.#sentAtMs !== null)
      admitting.paces.completed({ model: options.model, tokens, ms: this.#sinceSentMs });
    const rates = usage.isUntold && heldRates(admitting.billing, options, usage.promptTokens);
    return this.#end({ usage: rates ? { ...usage, rates } : usage, outcome });
  }

  release(): void {
    this.#end(null);
  }

  #end(owed: OwedRequest | null): number | null {
    if (this.#isEnded) return null;
    this.#isEnded = true;
    // As the hold is now: it may have grown from points into the quota.
    const { kind } = this.cover;
    this.cover.end();
    return this.admitting.ended(this, owed, kind);
  }
}
