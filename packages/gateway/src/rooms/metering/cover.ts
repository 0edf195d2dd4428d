import {
  type Cost,
  type Counter,
  grantedAmount,
  type Purse,
  type Quantity,
  REFUSED,
  type ReservedChange,
} from "../../bus/contract.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Tier } from "../billing/index.ts";
import type { HoldKind } from "./journal/codec.ts";
import type { KeyShare } from "./key-budgets.ts";
import { NOTHING, negative } from "./limits.ts";

/** What a request may take: a fixed part, and a price per output token. */
export interface Demand {
  payer: Payer;
  tier: Tier;
  /** In nano-dollars and tokens; no money if the model has no price. */
  readonly fixed: Quantity;
  readonly perToken: Quantity;
  /** Output tokens: requested, and the most and the least that this can be lowered to. */
  tokensMax: number;
  tokensLowered: number;
  tokensMin: number;
  tokensFloor: number;
  readonly hasPrice: boolean;
}

interface Total {
  fixed: Quantity;
  tokens: number;
}

/** What a hold is taken from, and how a cost counts there. */
export interface Source {
  kind: HoldKind;
  purses(): Purse[];
  alsoOn: readonly string[];
  names: readonly string[];
  scaled(amount: Quantity): Quantity;
}

/** No limit besides those of the key. */
export const UNLIMITED: Source = {
  kind: "none",
  purses: () => [],
  alsoOn: [],
  names: [],
  scaled: (amount) => amount,
};

/** The cost in dollars and tokens, as the key's limits count it. */
export const plainCost = ({ fixed, perToken }: Demand): Cost => ({ fixed, perUnit: perToken });

interface CoverOptions {
  demand: Demand;
  source: Source;
  /** Pays what points do not cover. */
  quota: Source;
  /** The key's own limits, in which the request is held in dollars and tokens. */
  share: KeyShare | null;
  amount: Quantity;
  tokens: number;
}

export const changesIn = (source: Source, amount: Quantity): ReservedChange[] =>
  source.names.map((name) => ({ name, amount }));

/** The hold of one request, on points, on the tier's quota, or only on the key's limits. */
export class Cover {
  readonly tokens: number;
  /** Something is reserved, possibly only in the key's limits. */
  readonly isHeld: boolean;
  #source: Source;
  #amount: Quantity;
  #ofKey: Quantity = NOTHING;
  #ended = false;
  #growing: Promise<unknown> = Promise.resolve();

  constructor(
    readonly counter: Counter,
    readonly options: CoverOptions,
  ) {
    this.tokens = options.tokens;
    this.isHeld = options.source !== UNLIMITED || options.share !== null;
    this.#source = options.source;
    this.#amount = options.amount;
    if (options.share) this.#ofKey = grantedAmount(plainCost(options.demand), options.tokens);
  }

  get kind(): HoldKind {
    return this.#source.kind;
  }

  /** Extends the hold to this total, one call after the other; false if it cannot grow. */
  grow(total: Total): Promise<boolean> {
    const grown = this.#growing.then(() => this.#grow(total));
    this.#growing = grown;
    return grown;
  }

  /** If points cannot cover the whole, all of it moves to the quota. */
  async #grow(total: Total): Promise<boolean> {
    if (await this.#growIn(this.#source, total, this.#amount)) return true;
    return this.#source.kind === "points" && this.#growIn(this.options.quota, total, NOTHING);
  }

  /** Reserves in `source` what `total` takes beyond `held`, and moves the hold there. */
  async #growIn(source: Source, total: Total, held: Quantity): Promise<boolean> {
    if (this.#ended) return false;
    const { demand, share } = this.options;
    const perUnit = source.scaled(demand.perToken);
    const wanted = grantedAmount({ fixed: source.scaled(total.fixed), perUnit }, total.tokens);
    const more = beyond(wanted, held);
    const ofKey = share
      ? grantedAmount({ fixed: total.fixed, perUnit: demand.perToken }, total.tokens)
      : NOTHING;
    const moreOfKey = beyond(ofKey, this.#ofKey);
    if (isNothing(more) && isNothing(moreOfKey)) return true;
    const purses = source.purses();
    if (share) purses.push(...share.purses({ fixed: moreOfKey, perUnit: NOTHING }, { isGrowing: true }));
    const asking = { purses, alsoOn: source.alsoOn, fixed: more, perUnit, unitsMin: 0, unitsMax: 0 };
    if (purses.length > 0 && (await this.counter.grant(asking)) === REFUSED) return false;
    if (this.#ended) {
      this.#change(source, negative(more), negative(moreOfKey));
      return false;
    }
    if (source !== this.#source) this.#change(this.#source, negative(this.#amount), NOTHING);
    this.#source = source;
    this.#amount = sum(held, more);
    this.#ofKey = sum(this.#ofKey, moreOfKey);
    return true;
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#change(this.#source, negative(this.#amount), negative(this.#ofKey));
  }

  #change(source: Source, amount: Quantity, ofKey: Quantity): void {
    const changes = changesIn(source, amount);
    const { share } = this.options;
    if (share && !isNothing(ofKey)) changes.push(...share.names.map((name) => ({ name, amount: ofKey })));
    if (changes.length > 0) this.counter.change(changes);
  }
}

const isNothing = ({ money, tokens }: Quantity): boolean => money === 0 && tokens === 0;
const sum = (a: Quantity, b: Quantity): Quantity => ({
  money: a.money + b.money,
  tokens: a.tokens + b.tokens,
});
const beyond = (wanted: Quantity, held: Quantity): Quantity => ({
  money: Math.max(0, wanted.money - held.money),
  tokens: Math.max(0, wanted.tokens - held.tokens),
});
