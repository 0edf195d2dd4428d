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

/** What a request may take: a part that is certain, and so much for each output token. */
export interface Demand {
  payer: Payer;
  tier: Tier;
  /** In nano-dollars and tokens; no money when the model has no price. */
  readonly fixed: Quantity;
  readonly perToken: Quantity;
  /** Output tokens: what is asked for, and the least that it can be lowered to. */
  tokensMax: number;
  tokensMin: number;
  readonly hasPrice: boolean;
}

interface Total {
  fixed: Quantity;
  tokens: number;
}

/** Where a hold is taken, and how a cost counts there. */
export interface Source {
  kind: HoldKind;
  purses(): Purse[];
  alsoOn: readonly string[];
  names: readonly string[];
  scaled(amount: Quantity): Quantity;
}

/** Nothing that limits it: only the key's own limits are held against. */
export const UNLIMITED: Source = {
  kind: "none",
  purses: () => [],
  alsoOn: [],
  names: [],
  scaled: (amount) => amount,
};

/** What a request costs in dollars and tokens, as its key's own limits count it. */
export const plainCost = ({ fixed, perToken }: Demand): Cost => ({ fixed, perUnit: perToken });

interface CoverOptions {
  demand: Demand;
  source: Source;
  /** What pays where points do not. */
  quota: Source;
  /** The limits of the key itself, in which the same request is held in dollars and tokens. */
  share: KeyShare | null;
  amount: Quantity;
  tokens: number;
}

/** The same change under every name that the source counts in. */
export const changesIn = (source: Source, amount: Quantity): ReservedChange[] =>
  source.names.map((name) => ({ name, amount }));

/** What pays for a request: points, the tier's quota, or nothing that needs reserving. */
export class Cover {
  readonly tokens: number;
  /** Something was reserved for it, if only in the key's own limits. */
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

  /** Extends the reservation to this total; false when it cannot grow. One at a time: each reserves what is missing then. */
  grow(total: Total): Promise<boolean> {
    const grown = this.#growing.then(() => this.#grow(total));
    this.#growing = grown;
    return grown;
  }

  /** If points cannot cover the whole, the whole moves to the quota, which may be unlimited. */
  async #grow(total: Total): Promise<boolean> {
    if (await this.#growIn(this.#source, total, this.#amount)) return true;
    return this.#source.kind === "points" && this.#growIn(this.options.quota, total, NOTHING);
  }

  /** Reserves in `source` what `total` takes beyond `held`, and holds it there from then on. */
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
