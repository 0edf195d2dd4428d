import { type Cost, NO_LIMIT, type Purse, type Quantity, type Spent } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { KeyLimits, Payer } from "../../kernel/payer.ts";
import { memberId } from "../usage/for-thread.ts";
import type { KeySpend, UsageStore } from "../usage/index.ts";
import { refusalUnchecked } from "./refusals.ts";

/** After this long a key's spend is read again in the background: other instances write to it too. */
const REFRESH_AFTER_MS = 10_000;
/** Older than this it is read before it is used. Redis has what others spent for longer than that. */
const TRUSTED_MS = 60_000;

const NOTHING_SPENT: Spent = { money: 0, tokens: 0, version: 0 };

/** Which budgets of its key a request is held against, as the journal keeps it. */
export const MONTHLY_BUDGET = 1;
export const TOTAL_BUDGET = 2;
/** The monthly one of the key's owner as a member of its group. */
const MEMBER_BUDGET = 4;

export const budgetsOf = (limits: KeyLimits | null): number =>
  limits
    ? (limits.monthlyNanoUsd === null ? 0 : MONTHLY_BUDGET) |
      (limits.totalNanoUsd === null ? 0 : TOTAL_BUDGET) |
      (limits.memberNanoUsd === null ? 0 : MEMBER_BUDGET)
    : 0;

interface Spender {
  id: string;
  budgets: number;
}

/** The key, and the member whose key it is, each with those of the budgets that are theirs. */
export function spendersOf(
  { keyId, groupId, userId }: Pick<Payer, "keyId" | "groupId" | "userId">,
  budgets: number,
): Spender[] {
  const spenders: Spender[] = [];
  const ofKey = budgets & (MONTHLY_BUDGET | TOTAL_BUDGET);
  if (keyId !== null && ofKey > 0) spenders.push({ id: keyId, budgets: ofKey });
  if (groupId !== null && budgets & MEMBER_BUDGET)
    spenders.push({ id: memberId(groupId, userId), budgets: MONTHLY_BUDGET });
  return spenders;
}

export const tokenPaceName = (keyId: string): string => `key-tokens ${keyId}`;
const monthName = (keyId: string, month: string): string => `key ${keyId} ${month}`;
const totalName = (keyId: string): string => `key ${keyId}`;

/** Sums only grow, so the sum itself tells which of two readings is the newer one. */
const spentUsd = (nanoUsd: number): Spent => ({ money: nanoUsd, tokens: 0, version: nanoUsd });

export function spentOfKey(spend: KeySpend, budgets: number): { name: string; spent: Spent }[] {
  const { keyId, month, monthNanoUsd, totalNanoUsd } = spend;
  const names: { name: string; spent: Spent }[] = [];
  if (budgets & MONTHLY_BUDGET) names.push({ name: monthName(keyId, month), spent: spentUsd(monthNanoUsd) });
  if (budgets & TOTAL_BUDGET) names.push({ name: totalName(keyId), spent: spentUsd(totalNanoUsd) });
  return names;
}

/** The names under which what the key spends is reserved. */
export const budgetNames = (key: Pick<KeySpend, "keyId" | "month">, budgets: number): string[] =>
  spentOfKey({ ...key, monthNanoUsd: 0, totalNanoUsd: 0 }, budgets).map(({ name }) => name);

export type KeyLimitKind = "tokens_per_minute" | "monthly_budget" | "total_budget" | "member_budget";

interface KeyLimit {
  kind: KeyLimitKind;
  name: string;
  limit: Quantity;
  spent(): Spent;
}

/** The limits of a request's key, as purses beside those of what pays for it. */
export class KeyShare {
  readonly names: readonly string[];

  constructor(readonly limits: readonly KeyLimit[]) {
    this.names = limits.map(({ name }) => name);
  }

  /** The whole bound must fit, whatever pays for it. An answer that is under way is not cut off because of its pace. */
  purses(cost: Cost, { isGrowing = false } = {}): Purse[] {
    const unlimited = { money: NO_LIMIT, tokens: NO_LIMIT };
    return this.limits.map((each) =>
      purseOf(each, isGrowing && each.kind === "tokens_per_minute" ? unlimited : each.limit, cost),
    );
  }

  purse(kind: KeyLimitKind, cost: Cost): Purse | null {
    const found = this.limits.find((each) => each.kind === kind);
    return found ? purseOf(found, found.limit, cost) : null;
  }
}

const purseOf = ({ name, spent }: KeyLimit, limit: Quantity, cost: Cost): Purse => ({
  name,
  limit,
  spent: spent(),
  unitsBeyond: null,
  cost,
});

/** Of a key, or of a member, who has one for all keys. */
type Limits = KeyLimits | number | null;
const limitsOf = (id: string, { keyId, keyLimits }: Payer): Limits =>
  id === keyId ? keyLimits : keyLimits!.memberNanoUsd;

/** Changed in place: requests under way look at it when their holds grow. */
interface KnownBudget {
  /** The limits that it was read for: after an edit it is read again, because only budgets that exist are told of. */
  limits: Limits;
  spend: KeySpend;
  readAtMs: number;
}

/** What keys with a budget have spent, without a database round trip once it is known. */
export class KeyBudgets {
  readonly #known = new BoundedMap<string, KnownBudget>();
  readonly #reading = new Map<string, Promise<void>>();

  constructor(readonly options: { store: UsageStore; clock: Clock; log: Log }) {}

  /** The key's limits in the months in which the request may end; null: none, undefined: its spend must be read first. */
  shareOf(payer: Payer, months: readonly string[]): KeyShare | null | undefined {
    const { keyId, keyLimits } = payer;
    if (!keyLimits || keyId === null) return null;
    const { monthlyNanoUsd, totalNanoUsd, memberNanoUsd, tokensPerMinute } = keyLimits;
    const limits: KeyLimit[] = [];
    if (tokensPerMinute !== null) {
      limits.push({
        kind: "tokens_per_minute",
        name: tokenPaceName(keyId),
        limit: { money: NO_LIMIT, tokens: tokensPerMinute },
        spent: () => NOTHING_SPENT,
      });
    }
    for (const { id, budgets } of spendersOf(payer, budgetsOf(keyLimits))) {
      const known = this.#trusted(id, limitsOf(id, payer));
      if (!known) return undefined;
      const inDollars = (kind: KeyLimitKind, name: string, nanoUsd: number, spentOf: () => number): void => {
        const limit = { money: nanoUsd, tokens: NO_LIMIT };
        limits.push({ kind, name, limit, spent: () => spentUsd(spentOf()) });
      };
      // The newest month counts, even where another instance's clock was the first to get there.
      const spentIn = (month: string) => () => (known.spend.month >= month ? known.spend.monthNanoUsd : 0);
      const [kind, inMonth] =
        id === keyId
          ? (["monthly_budget", monthlyNanoUsd] as const)
          : (["member_budget", memberNanoUsd] as const);
      if (budgets & MONTHLY_BUDGET)
        for (const month of months) inDollars(kind, monthName(id, month), inMonth!, spentIn(month));
      if (budgets & TOTAL_BUDGET)
        inDollars("total_budget", totalName(id), totalNanoUsd!, () => known.spend.totalNanoUsd);
    }
    return limits.length > 0 ? new KeyShare(limits) : null;
  }

  #trusted(keyId: string, limits: Limits): KnownBudget | null {
    const known = this.#known.get(keyId);
    if (!known || known.limits !== limits) return null;
    const ageMs = this.options.clock.now() - known.readAtMs;
    if (ageMs > TRUSTED_MS || ageMs < 0) return null;
    if (ageMs > REFRESH_AFTER_MS && !this.#reading.has(keyId))
      this.#readShared(keyId, limits).catch((error) => this.#keep(known, error));
    return known;
  }

  /** Reads what the key has spent. On failure what is known stays in force; an unknown key is refused. */
  async read(payer: Payer, timely: (work: Promise<void>) => Promise<void>): Promise<void> {
    for (const { id } of spendersOf(payer, budgetsOf(payer.keyLimits))) {
      const limits = limitsOf(id, payer);
      try {
        await timely(this.#readShared(id, limits));
      } catch (error) {
        const known = this.#known.get(id);
        if (!known) throw refusalUnchecked(error);
        known.limits = limits;
        this.#keep(known, error);
      }
    }
  }

  /** What is known stays in force, and is not asked for again at once. */
  #keep(known: KnownBudget, error: unknown): void {
    const { clock, log } = this.options;
    log.warn("reading a key's spend failed; using the cached one", { key_id: known.spend.keyId, error });
    known.readAtMs = clock.now();
  }

  #readShared(keyId: string, limits: Limits): Promise<void> {
    let reading = this.#reading.get(keyId);
    if (!reading) {
      reading = this.#read(keyId, limits).finally(() => this.#reading.delete(keyId));
      this.#reading.set(keyId, reading);
    }
    return reading;
  }

  async #read(keyId: string, limits: Limits): Promise<void> {
    const { store, clock } = this.options;
    const spend = await store.keySpend(keyId);
    const known = this.#known.get(keyId);
    if (known) {
      known.limits = limits;
      this.#update(known, spend);
    } else this.#known.set(keyId, { limits, spend, readAtMs: clock.now() });
  }

  /** Sums only grow: of two, the larger one is the newer. */
  #update(known: KnownBudget, spend: KeySpend): void {
    if (spend.totalNanoUsd >= known.spend.totalNanoUsd) known.spend = spend;
    known.readAtMs = this.options.clock.now();
  }

  /** A transaction was committed and left the sums like this. */
  written(keys: readonly KeySpend[]): void {
    for (const spend of keys) {
      const known = this.#known.get(spend.keyId);
      if (known) this.#update(known, spend);
    }
  }
}
