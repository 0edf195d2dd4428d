import type { Quantity } from "../../bus/contract.ts";
import type { Transaction } from "../../storage/contract.ts";
import type { Tiers } from "../billing/for-thread.ts";
import type { QuotaPayer, Settlement } from "../ledger/index.ts";
import { utcMonth, WHOLE_USER } from "../usage/for-thread.ts";
import type { MonthKey, UsageStore } from "../usage/index.ts";
import { type ChargedEntry, takesPoints } from "./journal/codec.ts";
import { limitOf } from "./limits.ts";
import { type Used, usedOf } from "./windows.ts";

export interface TierQuotaOptions {
  store: UsageStore;
  tiers: Pick<Tiers, "tier" | "tierOf">;
}

/** A window as the rollups have it, and as it is while a batch is gone through. */
interface BatchWindow {
  stored: Used;
  now: Used;
}

interface Counted {
  entry: ChargedEntry;
  limit: Quantity | null;
  /** The whole user's month, and the project's where there is one. */
  whole: BatchWindow;
  own: BatchWindow | null;
}

const NOTHING_USED = (): Used => ({ all: { money: 0, tokens: 0 }, byKeys: { money: 0, tokens: 0 } });
const copied = ({ all, byKeys }: Used): Used => ({ all: { ...all }, byKeys: { ...byKeys } });

class BatchWindows {
  readonly keys: MonthKey[] = [];
  readonly #byName = new Map<string, BatchWindow>();

  of(key: MonthKey): BatchWindow {
    const name = nameOf(key);
    let window = this.#byName.get(name);
    if (!window) {
      window = { stored: NOTHING_USED(), now: NOTHING_USED() };
      this.#byName.set(name, window);
      this.keys.push(key);
    }
    return window;
  }

  values(): Iterable<BatchWindow> {
    return this.#byName.values();
  }
}

const nameOf = ({ userId, month, project }: MonthKey) => `${userId} ${month} ${project}`;

/** The quota while a batch is settled: rollups plus what the batch adds. A request counts whole while a unit is left. */
export class TierQuota implements QuotaPayer {
  readonly #windows = new BatchWindows();
  readonly #counted: Counted[] = [];
  /** Position in the batch up to which everything was counted that the quota pays in any case. */
  #at = 0;

  constructor(
    readonly options: TierQuotaOptions,
    readonly entries: readonly ChargedEntry[],
  ) {}

  async load(tx: Transaction): Promise<void> {
    const { store, tiers } = this.options;
    for (const entry of this.entries) {
      const tier = entry.tier ?? (await tiers.tierOf(entry.userId));
      this.#counted.push(this.#count(entry, limitOf(tiers.tier(tier))));
    }
    for (const month of await store.lockMonths(tx, this.#windows.keys))
      this.#windows.of(month).stored = usedOf(month);
  }

  /** The entries of one user mostly follow one another; then the windows are those of the one before. */
  #count(entry: ChargedEntry, limit: Quantity | null): Counted {
    if (limit === null) return { entry, limit, whole: UNLIMITED, own: null };
    const { userId, project, atMs } = entry;
    const month = utcMonth(atMs);
    const last = this.#counted.at(-1);
    const isSame =
      last?.limit &&
      last.entry.userId === userId &&
      last.entry.project === project &&
      utcMonth(last.entry.atMs) === month;
    if (isSame) return { entry, limit, whole: last.whole, own: last.own };
    const whole = this.#windows.of({ userId, month, project: WHOLE_USER });
    return {
      entry,
      limit,
      whole,
      own: project === null ? null : this.#windows.of({ userId, month, project }),
    };
  }

  begin(): void {
    this.#at = 0;
    for (const window of this.#windows.values()) window.now = copied(window.stored);
  }

  pays({ requestId }: Settlement): boolean {
    let counted = this.#counted[this.#at];
    for (; counted && counted.entry.requestId !== requestId; counted = this.#counted[++this.#at]) {
      if (!takesPoints(counted.entry)) this.#add(counted);
    }
    if (!counted) throw new Error(`the quota was asked for ${requestId}, which does not follow in its batch`);
    if (counted.limit === null) return true;
    if (this.#isDrained(counted, counted.limit)) return false;
    this.#add(counted);
    return true;
  }

  #isDrained({ whole, own }: Counted, limit: Quantity): boolean {
    const reaches = ({ money, tokens }: Quantity) => money >= limit.money || tokens >= limit.tokens;
    return own ? reaches(own.now.all) || reaches(whole.now.byKeys) : reaches(whole.now.all);
  }

  #add({ entry, limit, whole, own }: Counted): void {
    if (limit === null) return;
    const { costNanoUsd, promptTokens, completionTokens } = entry;
    const add = (used: Quantity) => {
      used.money += costNanoUsd ?? 0;
      used.tokens += promptTokens + completionTokens;
    };
    add(whole.now.all);
    if (!own) return;
    add(whole.now.byKeys);
    add(own.now.all);
  }
}

const UNLIMITED: BatchWindow = { stored: NOTHING_USED(), now: NOTHING_USED() };
