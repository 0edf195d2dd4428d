import type { Clock } from "../../kernel/clock.ts";
import type { Outcome } from "../../kernel/request-record.ts";
import type { Billing } from "../billing/index.ts";
import type { Cover } from "./cover.ts";
import { capped, heldFor, heldRates, TOKENS_MAX } from "./demand.ts";
import type { HoldKind } from "./journal/codec.ts";
import type { Paces } from "./paces.ts";
import type { AdmitOptions, FinalUsage } from "./types.ts";

type GivenUp = Pick<FinalUsage, "promptTokens" | "completionTokens" | "costUsd">;

export interface Admitting {
  billing: Pick<Billing, "pricing">;
  clock: Clock;
  paces: Paces;
  givenUp(options: AdmitOptions, usage: GivenUp): void;
  /** The hold has ended. `owed` null: nothing is charged. Returns the price. */
  ended(admission: Admitted, owed: OwedRequest | null, kind: HoldKind): number | null;
}

export interface OwedRequest {
  usage: FinalUsage;
  outcome: Outcome | null;
}

/** One request that may spend until it is settled or released. A class, to allocate no closures per request. */
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
    this.lowered = "outputTokensMax" in bound && cover.tokens < capped(bound.outputTokensMax, TOKENS_MAX);
  }

  /** Output tokens in the hold, over all choices. The caller must not let the upstream write more before `grow`. */
  get outputTokensHeld(): number {
    return this.cover.tokens;
  }

  get isHeld(): boolean {
    return this.cover.isHeld;
  }

  /** Extends the hold to this total; false if it cannot grow. A hold on points may move to the quota as a whole. */
  async grow(total: { promptTokens: number; completionTokens: number }): Promise<boolean> {
    if (this.#isEnded) return false;
    const { fixed } = heldFor(this.admitting.billing, this.options, total.promptTokens);
    return this.cover.grow({ fixed, tokens: capped(total.completionTokens, TOKENS_MAX) });
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

  /** Output tokens that the model may have written by now, at most those held. Charged if the answer is cut short. */
  writtenTokens(): number {
    const { options, admitting, outputTokensHeld } = this;
    const { bound, model } = options;
    const most = ("perChoice" in bound && bound.perChoice?.(outputTokensHeld)) || outputTokensHeld;
    return Math.ceil(Math.min(most, admitting.paces.tokensIn(model, this.#sinceSentMs)) * this.#answers);
  }

  /** Counts in a metric what an abandoned attempt may have cost; nobody is charged for it. */
  givenUp(usage: GivenUp): void {
    this.admitting.givenUp(this.options, usage);
  }

  /** Journals the usage before more answers are sent; never throws. Returns nano-dollars or null. `outcome`: its failure. */
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
    // Read it now: growing may have moved the hold from points to the quota.
    const { kind } = this.cover;
    this.cover.end();
    return this.admitting.ended(this, owed, kind);
  }
}
