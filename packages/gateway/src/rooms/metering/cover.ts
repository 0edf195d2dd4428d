import {
  grantedAmount,
  type Purse,
  type Quantity,
  REFUSED,
  type Reservations,
  type ReservedChange,
} from "../../bus/contract.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Tier } from "../billing/index.ts";
import type { HoldKind } from "./journal/codec.ts";
import { limitOf, NOTHING, negative } from "./limits.ts";

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
  hasPrice: boolean;
  /** Counts `fixed` exactly instead of by samples, once; returns whether that changed it. */
  recount?(): boolean;
}

/** What pays for a request: points, the tier's quota, or nothing that needs reserving. */
export interface Cover {
  readonly kind: HoldKind;
  /** Output tokens that it is held for. */
  readonly tokens: number;
  /** Extends the reservation to this total; false when it cannot grow. */
  grow(total: { fixed: Quantity; tokens: number }): boolean | Promise<boolean>;
  /** Releases the reservation. */
  end(): void;
}

/** Nothing that needs reserving. */
export const nothing = ({ tokensMax }: Demand): Cover => ({
  kind: "none",
  tokens: tokensMax,
  grow: () => true,
  end() {},
});

/** Where a hold is taken, and how a cost counts there. */
export interface Source {
  kind: "points" | "quota";
  /** As they are now. */
  purses(): Purse[];
  alsoOn: readonly string[];
  scaled(amount: Quantity): Quantity;
}

interface HeldOptions {
  demand: Demand;
  source: Source;
  /** The fallback when the points run out. */
  quota: Source | null;
  amount: Quantity;
  tokens: number;
}

/** The same change under every name that the source counts in. */
export const changesIn = (source: Source, amount: Quantity): ReservedChange[] =>
  [...source.purses().map(({ name }) => name), ...source.alsoOn].map((name) => ({ name, amount }));

/** A reservation of one request. */
export class Held implements Cover {
  readonly tokens: number;
  #source: Source;
  #amount: Quantity;
  #ended = false;
  /** It has grown into a quota without limits, where nothing needs to be reserved. */
  #isFree = false;
  /** Set while other instances are asked. */
  #growing: Promise<boolean> | null = null;

  constructor(
    readonly reservations: Reservations,
    readonly options: HeldOptions,
  ) {
    this.tokens = options.tokens;
    this.#source = options.source;
    this.#amount = options.amount;
  }

  get kind(): HoldKind {
    return this.#isFree ? "none" : this.#source.kind;
  }

  grow(total: { fixed: Quantity; tokens: number }): boolean | Promise<boolean> {
    // One at a time: each reserves what is still missing after the one before it.
    if (this.#growing) return this.#growing.then(() => this.grow(total));
    const grown = this.#grow(total);
    if (!(grown instanceof Promise)) return grown;
    this.#growing = grown.finally(() => {
      this.#growing = null;
    });
    return this.#growing;
  }

  #grow(total: { fixed: Quantity; tokens: number }): boolean | Promise<boolean> {
    if (this.#isFree) return true;
    const grown = this.#growIn(this.#source, total, this.#amount);
    if (grown instanceof Promise) return grown.then((done) => done || this.#growBeyondPoints(total));
    return grown || this.#growBeyondPoints(total);
  }

  /** If points cannot cover the whole, the whole moves to the quota, which may be unlimited. */
  #growBeyondPoints(total: { fixed: Quantity; tokens: number }): boolean | Promise<boolean> {
    const { quota, demand } = this.options;
    if (this.#source.kind !== "points" || this.#ended) return false;
    if (quota) return this.#growIn(quota, total, NOTHING);
    if (limitOf(demand.tier) !== null) return false;
    this.end();
    this.#isFree = true;
    return true;
  }

  /** Reserves in `source` what `total` takes beyond `held`, and holds it there from then on. */
  #growIn(
    source: Source,
    total: { fixed: Quantity; tokens: number },
    held: Quantity,
  ): boolean | Promise<boolean> {
    if (this.#ended) return false;
    const perUnit = source.scaled(this.options.demand.perToken);
    const wanted = grantedAmount({ fixed: source.scaled(total.fixed), perUnit }, total.tokens);
    const more = {
      money: Math.max(0, wanted.money - held.money),
      tokens: Math.max(0, wanted.tokens - held.tokens),
    };
    if (more.money === 0 && more.tokens === 0) return true;
    const keep = (granted: number): boolean => {
      if (granted === REFUSED) return false;
      if (this.#ended) {
        this.#change(source, negative(more));
        return false;
      }
      if (source !== this.#source) this.#change(this.#source, negative(this.#amount));
      this.#source = source;
      this.#amount = { money: held.money + more.money, tokens: held.tokens + more.tokens };
      return true;
    };
    const granted = this.reservations.grant({
      purses: source.purses(),
      alsoOn: source.alsoOn,
      fixed: more,
      perUnit,
      unitsMin: 0,
      unitsMax: 0,
    });
    return granted instanceof Promise ? granted.then(keep) : keep(granted);
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#change(this.#source, negative(this.#amount));
  }

  #change(source: Source, amount: Quantity): void {
    this.reservations.change(changesIn(source, amount));
  }
}
