import type { Quantity, Spent } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import { WHOLE_USER } from "../usage/for-thread.ts";
import type { MonthKey, MonthQuota, UsageStore } from "../usage/index.ts";

/** After this long a window is read again in the background: other instances write to it too. */
const REFRESH_AFTER_MS = 10_000;

/** One month of a user, or of one of the user's projects, as far as this process knows. */
export interface QuotaWindow {
  readonly key: MonthKey;
  /** What reservations on it are made under. */
  readonly name: string;
  /** The same for all keys of the user together; only where the window is the whole user's. */
  readonly keysName: string;
  used: Used | null;
  readAtMs: number;
  reading: Promise<void> | null;
  /** Grows with every batch written, so that a read that began earlier is discarded. */
  version: number;
}

export interface Used {
  all: Quantity;
  byKeys: Quantity;
}

/** A month's use only grows, so its sum tells which of two readings is the newer one. */
export const spentOf = ({ money, tokens }: Quantity): Spent => ({ money, tokens, version: money + tokens });

export const usedOf = (month: Omit<MonthQuota, keyof MonthKey>): Used => ({
  all: { money: month.quotaCostNanoUsd, tokens: month.quotaTokens },
  byKeys: { money: month.keyQuotaCostNanoUsd, tokens: month.keyQuotaTokens },
});

export const nameOf = ({ userId, month, project }: MonthKey) => `${userId} ${month} ${project}`;
/** A name of its own: it begins like no other, so no project label can be mistaken for it. */
const keysNameOf = ({ userId, month }: MonthKey) => `keys ${userId} ${month}`;

/** The names on which a request is reserved that a month's quota pays; without a key its project is `WHOLE_USER`. */
export const windowNames = (month: MonthKey): string[] => {
  const whole = nameOf({ ...month, project: WHOLE_USER });
  return month.project === WHOLE_USER ? [whole] : [nameOf(month), keysNameOf(month), whole];
};

/** What is spent under each name that the month stands for. */
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
    const nothing = { used: null, readAtMs: 0, reading: null, version: 0 };
    const window = { key, name, keysName: keysNameOf(key), ...nothing };
    this.#windows.set(name, window);
    return window;
  }

  /** Whether `used` can be relied on now; a stale one can while it is refreshed in the background. */
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

  /** Reads the window from the database, after what must come before; one read at a time. */
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

  /** A transaction was committed and left the rollups like this. */
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
