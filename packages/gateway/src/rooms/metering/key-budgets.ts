import { type Cost, NO_LIMIT, type Purse, type Quantity, type Spent } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { KeyLimits, Payer } from "../../kernel/payer.ts";
import { memberId } from "../usage/for-thread.ts";
import type { KeySpend, UsageStore } from "../usage/index.ts";
import { refusalUnchecked } from "./refusals.ts";

/** After this time a key's spend is refreshed in the background, because other instances change it too. */
const REFRESH_AFTER_MS = 10_000;
/** An older reading must be refreshed before use. Redis keeps what others spent for longer than that. */
const TRUSTED_MS = 60_000;

const NOTHING_SPENT: Spent = { money: 0, tokens: 0, version: 0 };

/** Bits for the budgets that a request is held against, stored in the journal. */
export const MONTHLY_BUDGET = 1;
export const TOTAL_BUDGET = 2;
/** The monthly budget of the key's owner as a member of the group. */
const MEMBER_BUDGET = 4;

export const budgetsOf = (limits: KeyLimits | null): number =>
  limits
    ? (limits.monthlyNanoUsd === null ? 0 : MONTHLY_BUDGET) |
      (limits.totalNanoUsd === null ? 0 : TOTAL_BUDGET) |
      (limits.memberNanoUsd === null ? 0 : MEMBER_BUDGET)
    : 0;

/** The key and the group member who owns it, each with their share of the budgets. */
export function spendersOf(
  { keyId, groupId, userId }: Pick<Payer, "keyId" | "groupId" | "userId">,
  budgets: number,
): { id: string; budgets: number }[] {
  const spenders: { id: string; budgets: number }[] = [];
  const ofKey = budgets & (MONTHLY_BUDGET | TOTAL_BUDGET);
  if (keyId !== null && ofKey > 0) spenders.push({ id: keyId, budgets: ofKey });
  if (groupId !== null && budgets & MEMBER_BUDGET)
    spenders.push({ id: memberId(groupId, userId), budgets: MONTHLY_BUDGET });
  return spenders;
}

export const tokenPaceName = (keyId: string): string => `key-tokens ${keyId}`;
const monthName = (keyId: string, month: string): string => `key ${keyId} ${month}`;
const totalName = (keyId: string): string => `key ${keyId}`;

/** Sums only grow, so the sum itself is the version. */
const spentUsd = (nanoUsd: number): Spent => ({ money: nanoUsd, tokens: 0, version: nanoUsd });

export function spentOfKey(spend: KeySpend, budgets: number): { name: string; spent: Spent }[] {
  const { keyId, month, monthNanoUsd, totalNanoUsd } = spend;
  const names: { name: string; spent: Spent }[] = [];
  if (budgets & MONTHLY_BUDGET) names.push({ name: monthName(keyId, month), spent: spentUsd(monthNanoUsd) });
  if (budgets & TOTAL_BUDGET) names.push({ name: totalName(keyId), spent: spentUsd(totalNanoUsd) });
  return names;
}

/** The names under which the key's spending is reserved. */
export const budgetNames = (key: Pick<KeySpend, "keyId" | "month">, budgets: number): string[] =>
  spentOfKey({ ...key, monthNanoUsd: 0, totalNanoUsd: 0 }, budgets).map(({ name }) => name);

export type KeyLimitKind = "tokens_per_minute" | "monthly_budget" | "total_budget" | "member_budget";

interface KeyLimit {
  kind: KeyLimitKind;
  name: string;
  limit: Quantity;
  spent(): Spent;
}

/** The limits of a request's key, as purses beside those of its payment. */
export class KeyShare {
  readonly names: readonly string[];

  constructor(readonly limits: readonly KeyLimit[]) {
    this.names = limits.map(({ name }) => name);
  }

  /** The whole bound must fit. A running answer is not cut off because of its pace. */
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

/** Limits of a key, or the budget of a member for all their keys of the group. */
type Limits = KeyLimits | number | null;
const limitsOf = (id: string, { keyId, keyLimits }: Payer): Limits =>
  id === keyId ? keyLimits : keyLimits!.memberNanoUsd;

/** Changed in place, because running requests read it when their holds grow. */
interface KnownBudget {
  /** The limits at the time of reading. After an edit it is read again, because spend is reported per existing budget. */
  limits: Limits;
  spend: KeySpend;
  readAtMs: number;
}

/** Caches what keys with a budget have spent. */
export class KeyBudgets {
  readonly #known = new BoundedMap<string, KnownBudget>();
  readonly #reading = new Map<string, Promise<void>>();

  constructor(readonly options: { store: UsageStore; clock: Clock; log: Log }) {}

  /** The key's limits in the months in which the request may end. Null: none; undefined: call `read` first. */
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
      // The newest month counts, even if only another instance's clock has reached it.
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

  /** Reads what the key has spent. If that fails, the known value stays in force; an unknown key is refused. */
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

  /** Keeps the known value for another period. */
  #keep(known: KnownBudget, error: unknown): void {
    const { clock, log } = this.options;
    log.warn("reading a key's spend failed; using the cached one", { key_id: known.spend.keyId, error });
    known.readAtMs = clock.now();
  }

  #readShared(keyId: string, limits: Limits): Promise<void> {
    return this.#reading.getOrInsertComputed(keyId, () =>
      this.#read(keyId, limits).finally(() => this.#reading.delete(keyId)),
    );
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

  #update(known: KnownBudget, spend: KeySpend): void {
    // Sums only grow, so the larger one is the newer.
    if (spend.totalNanoUsd >= known.spend.totalNanoUsd) known.spend = spend;
    known.readAtMs = this.options.clock.now();
  }

  /** The sums after a committed transaction. */
  written(keys: readonly KeySpend[]): void {
    for (const spend of keys) {
      const known = this.#known.get(spend.keyId);
      if (known) this.#update(known, spend);
    }
  }
}
