import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { MonthAfter, MonthKey, UsageStore } from "../usage/index.ts";

/** Windows kept in memory; those in use are never forgotten for it. */
const WINDOWS_MAX = 50_000;
const EVICTION_TRIES = 16;
/** After this long a window is read again in the background: other instances write to it too. */
const REFRESH_AFTER_MS = 10_000;

/** What counts against a quota. */
export interface Amount {
  costNanoUsd: number;
  tokens: number;
}

/** One month of a user, or of one of the user's projects, as far as this process knows. */
export interface QuotaWindow {
  readonly key: MonthKey;
  /** What the database has; null until it was read. */
  base: Amount | null;
  readAtMs: number;
  reading: Promise<void> | null;
  /** Grows with every batch written, so that a read that began before it is not believed. */
  version: number;
  /** Reserved by requests under way, and journaled but not yet in the database. */
  readonly reserved: Amount;
  reservations: number;
}

const keyOf = ({ userId, month, project }: MonthKey) => `${userId} ${month} ${project}`;

/** Quota windows without a database round trip once they are warm. */
export class QuotaWindows {
  readonly #windows = new Map<string, QuotaWindow>();
  constructor(readonly options: { store: UsageStore; clock: Clock; log: Log }) {}

  get(key: MonthKey): QuotaWindow {
    const id = keyOf(key);
    let window = this.#windows.get(id);
    if (!window) {
      if (this.#windows.size >= WINDOWS_MAX) this.#evict();
      window = {
        key,
        base: null,
        readAtMs: 0,
        reading: null,
        version: 0,
        reserved: { costNanoUsd: 0, tokens: 0 },
        reservations: 0,
      };
      this.#windows.set(id, window);
    }
    return window;
  }

  /** Makes room among the oldest; a window with something reserved stays. */
  #evict(): void {
    let tries = 0;
    for (const [id, { reservations }] of this.#windows) {
      if (reservations === 0) {
        this.#windows.delete(id);
        return;
      }
      if (++tries >= EVICTION_TRIES) return;
    }
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
    window.base = { costNanoUsd: quotaCostNanoUsd, tokens: quotaTokens };
    window.readAtMs = this.options.clock.now();
  }

  reserve(window: QuotaWindow, amount: Amount): void {
    window.reserved.costNanoUsd += amount.costNanoUsd;
    window.reserved.tokens += amount.tokens;
    window.reservations++;
  }

  release(window: QuotaWindow, amount: Amount): void {
    window.reserved.costNanoUsd -= amount.costNanoUsd;
    window.reserved.tokens -= amount.tokens;
    window.reservations--;
  }

  /** A batch was committed and left the rollups like this. */
  written(months: readonly MonthAfter[]): void {
    for (const month of months) {
      const window = this.#windows.get(keyOf(month));
      if (!window) continue;
      window.version++;
      window.base = { costNanoUsd: month.quotaCostNanoUsd, tokens: month.quotaTokens };
      window.readAtMs = this.options.clock.now();
    }
  }
}
