import type { Bus } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import { LEDGER_CHANGED } from "../../kernel/topics.ts";
import { type AccountRef, accountKey, type Balance, type BalanceChange } from "./account.ts";

/** The bus may lose a message, so a balance is read again after this long without news of it. */
const CONFIRMED_MS = 30_000;

type Read = (account: AccountRef) => Promise<Omit<BalanceChange, "account">>;

export type Balances = Pick<BalanceCache, "peek" | "last" | "load">;

/** Balances without a database round trip, kept current by `LEDGER_CHANGED`. */
export class BalanceCache {
  readonly #known = new BoundedMap<string, Balance & { confirmedAtMs: number }>();
  readonly #loading = new Map<string, Promise<Balance>>();
  readonly #clock: Clock;
  readonly #read: Read;

  constructor({ bus, clock, read }: { bus: Bus; clock: Clock; read: Read }) {
    this.#clock = clock;
    this.#read = read;
    // What is known may be old by now, and must be confirmed before it is relied on.
    bus.onGap(() => {
      for (const [, known] of this.#known.entries()) known.confirmedAtMs = Number.NEGATIVE_INFINITY;
    });
    bus.subscribe(LEDGER_CHANGED, (message) => {
      const { account, ...change } = JSON.parse(message) as BalanceChange;
      this.#learn(accountKey(account), change);
    });
  }

  /** Null when the balance is not known here, or has not been confirmed for a while: `load` it then. */
  peek(account: AccountRef): Balance | null {
    const known = this.#known.get(accountKey(account));
    if (!known) return null;
    const ageMs = this.#clock.now() - known.confirmedAtMs;
    // A clock that was set back makes the age negative, which confirms nothing.
    return ageMs >= 0 && ageMs <= CONFIRMED_MS ? known : null;
  }

  last(account: AccountRef): Balance | null {
    return this.#known.get(accountKey(account)) ?? null;
  }

  /** Reads the balance; callers that come while it is being read share the answer. */
  load(account: AccountRef): Promise<Balance> {
    const key = accountKey(account);
    let loading = this.#loading.get(key);
    if (!loading) {
      loading = this.#read(account)
        .then((read) => this.#learn(key, read))
        .finally(() => this.#loading.delete(key));
      this.#loading.set(key, loading);
    }
    return loading;
  }

  /** Keeps the newer of the cached and the reported balance; they may arrive in any order. */
  #learn(key: string, told: Omit<BalanceChange, "account">): Balance {
    const known = this.#known.get(key);
    if (known && known.version > told.version) return known;
    const { balance, everCredited, debts, version } = told;
    const entry = { balance, everCredited, debts: debts ?? null, version, confirmedAtMs: this.#clock.now() };
    this.#known.set(key, entry);
    return entry;
  }
}
