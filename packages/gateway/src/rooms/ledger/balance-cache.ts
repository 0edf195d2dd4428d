import { BoundedMap } from "../../kernel/bounded.ts";
import { LEDGER_CHANGED } from "../../kernel/topics.ts";
import type { Needs } from "../foundation.ts";
import { type AccountRef, accountKey, type Balance, type BalanceChange } from "./account.ts";
import { type AccountRow, type DebtRow, store } from "./store.ts";

/** The bus may lose messages, so a balance without news is reread after this time. */
const CONFIRMED_MS = 30_000;

export const toBalance = (row: AccountRow | null, debts: readonly DebtRow[]): Balance => ({
  balance: row?.balance ?? 0,
  everCredited: Boolean(row?.ever_credited),
  debts:
    debts.length === 0 ? null : Object.fromEntries(debts.map(({ debtor_id, points }) => [debtor_id, points])),
  version: row ? row.version + row.debt_entries : 0,
});

export type Balances = Pick<BalanceCache, "peek" | "last" | "load">;

/** Balances without a database round trip, kept current by `LEDGER_CHANGED`. */
export class BalanceCache {
  readonly #known = new BoundedMap<string, Balance & { confirmedAtMs: number }>();
  readonly #loading = new Map<string, Promise<Balance>>();

  constructor(readonly options: Needs<"db" | "bus" | "clock">) {
    const { bus } = options;
    // Cached balances may be stale, so they must be confirmed.
    bus.onGap(() => {
      for (const [, known] of this.#known.entries()) known.confirmedAtMs = Number.NEGATIVE_INFINITY;
    });
    bus.subscribe(LEDGER_CHANGED, (message) => {
      const { account, ...change } = JSON.parse(message) as BalanceChange;
      this.#learn(accountKey(account), change);
    });
  }

  /** Null if the balance is unknown or unconfirmed for a while; then call `load`. */
  peek(account: AccountRef): Balance | null {
    const known = this.#known.get(accountKey(account));
    if (!known) return null;
    const ageMs = this.options.clock.now() - known.confirmedAtMs;
    // After the clock was set back the age may be negative, which counts as unconfirmed.
    return ageMs >= 0 && ageMs <= CONFIRMED_MS ? known : null;
  }

  last(account: AccountRef): Balance | null {
    return this.#known.get(accountKey(account)) ?? null;
  }

  /** Reads the balance; concurrent callers share one read. */
  load(account: AccountRef): Promise<Balance> {
    const key = accountKey(account);
    return this.#loading.getOrInsertComputed(key, () =>
      this.#read(key).finally(() => this.#loading.delete(key)),
    );
  }

  async #read(key: string): Promise<Balance> {
    const { db } = this.options;
    const row = await store.account(db, key);
    // Read debts after the account: if they change in between, the version is too old and will be replaced.
    return this.#learn(key, toBalance(row, await store.debtsOn(db, [key])));
  }

  /** Keeps the newer of the cached and the reported balance; they may arrive in any order. */
  #learn(key: string, balance: Balance): Balance {
    const known = this.#known.get(key);
    if (known && known.version > balance.version) return known;
    const entry = { ...balance, confirmedAtMs: this.options.clock.now() };
    this.#known.set(key, entry);
    return entry;
  }
}
