import type { Quantity, Spent } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { WHOLE_USER } from "../usage/for-thread.ts";
import type { MonthKey, MonthQuota, UsageStore } from "../usage/index.ts";

/** After this time a window is refreshed in the background, because other instances change it too. */
const REFRESH_AFTER_MS = 10_000;

/** One month of a user or of one of the user's projects, as known to this process. */
export interface QuotaWindow {
  readonly key: MonthKey;
  /** The name under which reservations are made. */
  readonly name: string;
  /** The same for all keys of the user together; only for the whole user's window. */
  readonly keysName: string;
  used: Used | null;
  readAtMs: number;
  reading: Promise<void> | null;
  /** Grows with every written batch, so that reads that began earlier are discarded. */
  version: number;
}

export interface Used {
  all: Quantity;
  byKeys: Quantity;
}

/** A month's use only grows, so its sum is the version. */
export const spentOf = ({ money, tokens }: Quantity): Spent => ({ money, tokens, version: money + tokens });

export const usedOf = (month: Omit<MonthQuota, keyof MonthKey>): Used => ({
  all: { money: month.quotaCostNanoUsd, tokens: month.quotaTokens },
  byKeys: { money: month.keyQuotaCostNanoUsd, tokens: month.keyQuotaTokens },
});

export const nameOf = ({ userId, month, project }: MonthKey) => `${userId} ${month} ${project}`;
/** Its prefix keeps it apart from every project label. */
const keysNameOf = ({ userId, month }: MonthKey) => `keys ${userId} ${month}`;

/** The names under which a request paid by the quota is reserved; without a key its project is `WHOLE_USER`. */
export const windowNames = (month: MonthKey): string[] => {
  const whole = nameOf({ ...month, project: WHOLE_USER });
  return month.project === WHOLE_USER ? [whole] : [nameOf(month), keysNameOf(month), whole];
};

/** What is spent under each name of the month. */
export function spentNames(month: MonthQuota): { name: string; spent: Spent }[] {
  const { all, byKeys } = usedOf(month);
  const own = { name: nameOf(month), spent: spentOf(all) };
  return month.project === WHOLE_USER ? [own, { name: keysNameOf(month), spent: spentOf(byKeys) }] : [own];
}

export class QuotaWindows {
  readonly #windows = new BoundedMap<string, QuotaWindow>();
  constructor(readonly options: { store: UsageStore; clock: Clock; log: Log }) {}

  get(key: MonthKey): QuotaWindow {
    const name = nameOf(key);
    const known = this.#windows.get(name);
    if (known) return known;
    const keysName = keysNameOf(key);
    const window = { key, name, keysName, used: null, readAtMs: 0, reading: null, version: 0 };
    this.#windows.set(name, window);
    return window;
  }

  /** Whether `used` can be relied on; a stale value can, while it is refreshed in the background. */
  isKnown(window: QuotaWindow): boolean {
    const ageMs = this.options.clock.now() - window.readAtMs;
    if (window.used !== null && (ageMs > REFRESH_AFTER_MS || ageMs < 0)) {
      this.read(window).catch((error) => {
        window.readAtMs = this.options.clock.now();
        this.options.log.warn("quota refresh failed; using the cached one", { error });
      });
    }
    return window.used !== null;
  }

  /** Runs `before`, then reads the window from the database; one read at a time. */
  read(window: QuotaWindow, before = async () => {}): Promise<void> {
    window.reading ??= before()
      .then(() => this.#read(window))
      .finally(() => {
        window.reading = null;
      });
    return window.reading;
  }

  async #read(window: QuotaWindow): Promise<void> {
    const { version } = window;
    const month = await this.options.store.month(window.key);
    if (version !== window.version && window.used !== null) return;
    window.used = usedOf(month);
    window.readAtMs = this.options.clock.now();
  }

  /** The rollups after a committed transaction. */
  written(months: readonly MonthQuota[]): void {
    for (const month of months) {
      const window = this.#windows.get(nameOf(month));
      if (!window) continue;
      window.version++;
      window.used = usedOf(month);
      window.readAtMs = this.options.clock.now();
    }
  }
}
