import type { Quantity, Spent } from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { MonthAfter, MonthKey, UsageStore } from "../usage/index.ts";

const WINDOWS_MAX = 50_000;
/** After this long a window is read again in the background: other instances write to it too. */
const REFRESH_AFTER_MS = 10_000;

/** One month of a user, or of one of the user's projects, as far as this process knows. */
export interface QuotaWindow {
  readonly key: MonthKey;
  /** What reservations on it are made under. */
  readonly name: string;
  /** What the database has, in nano-dollars and tokens; null until it was read. */
  base: Quantity | null;
  readAtMs: number;
  reading: Promise<void> | null;
  /** Grows with every batch written, so that a read that began before it is not believed. */
  version: number;
}

/** A month's use only grows, so its sum tells which of two readings is the newer one. */
export const spentOf = ({ money, tokens }: Quantity): Spent => ({ money, tokens, version: money + tokens });

export const keyOf = ({ userId, month, project }: MonthKey) => `${userId} ${month} ${project}`;

/**
 * Windows by month, user and project, one after the other: every request asks several times, and a key made of
 * the three would be a new text each time.
 */
class WindowIndex {
  readonly #months = new Map<string, Map<string, Map<string, QuotaWindow>>>();
  #size = 0;

  get({ month, userId, project }: MonthKey): QuotaWindow | undefined {
    return this.#months.get(month)?.get(userId)?.get(project);
  }

  add(window: QuotaWindow): void {
    // A cache may always forget; those that are still used are read again.
    if (this.#size >= WINDOWS_MAX) {
      this.#months.clear();
      this.#size = 0;
    }
    const { month, userId, project } = window.key;
    const users = this.#months.get(month) ?? new Map<string, Map<string, QuotaWindow>>();
    const projects = users.get(userId) ?? new Map<string, QuotaWindow>();
    this.#months.set(month, users.set(userId, projects.set(project, window)));
    this.#size++;
  }
}

/** Quota windows without a database round trip once they are warm. */
export class QuotaWindows {
  readonly #windows = new WindowIndex();
  constructor(readonly options: { store: UsageStore; clock: Clock; log: Log }) {}

  get(key: MonthKey): QuotaWindow {
    const known = this.#windows.get(key);
    if (known) return known;
    const window = { key, name: keyOf(key), base: null, readAtMs: 0, reading: null, version: 0 };
    this.#windows.add(window);
    return window;
  }

  /** Whether `base` may be used now; an old one may, while it is read again behind it. */
  isKnown(window: QuotaWindow): boolean {
    const ageMs = this.options.clock.now() - window.readAtMs;
    if (window.base !== null && (ageMs > REFRESH_AFTER_MS || ageMs < 0)) {
      this.read(window).catch((error) => {
        window.readAtMs = this.options.clock.now();
        this.options.log.warn("quota not read again; the known one stays in force", { error });
      });
    }
    return window.base !== null;
  }

  /** Reads the window from the database; one read at a time. */
  read(window: QuotaWindow): Promise<void> {
    window.reading ??= this.#read(window).finally(() => {
      window.reading = null;
    });
    return window.reading;
  }

  async #read(window: QuotaWindow): Promise<void> {
    const { version } = window;
    const { quotaCostNanoUsd, quotaTokens } = await this.options.store.month(window.key);
    if (version !== window.version && window.base !== null) return;
    window.base = { money: quotaCostNanoUsd, tokens: quotaTokens };
    window.readAtMs = this.options.clock.now();
  }

  /** A batch was committed and left the rollups like this. */
  written(months: readonly MonthAfter[]): void {
    for (const month of months) {
      const window = this.#windows.get(month);
      if (!window) continue;
      window.version++;
      window.base = { money: month.quotaCostNanoUsd, tokens: month.quotaTokens };
      window.readAtMs = this.options.clock.now();
    }
  }
}
