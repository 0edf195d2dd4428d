import type { Quantity } from "../../bus/contract.ts";
import type { Transaction } from "../../storage/contract.ts";
import type { Tiers } from "../billing/for-thread.ts";
import type { QuotaPayer, Settlement } from "../ledger/index.ts";
import { utcMonth, WHOLE_USER } from "../usage/for-thread.ts";
import type { MonthKey, UsageStore } from "../usage/index.ts";
import { type ChargedEntry, takesPoints } from "./journal/codec.ts";
import { limitOf } from "./limits.ts";
import { nameOf, type Used, usedOf } from "./windows.ts";

export interface TierQuotaOptions {
  store: UsageStore;
  tiers: Pick<Tiers, "tier" | "tierOf">;
}

/** A window as the rollups have it, and as it is while a batch is gone through. */
interface BatchWindow {
  key: MonthKey;
  stored: Used;
  now: Used;
}

/** What counts against a limit. */
interface Counted {
  limit: Quantity;
  /** The whole user's month, and the project's where there is one. */
  whole: BatchWindow;
  own: BatchWindow | null;
}

const nothingUsed = (): Used => ({ all: { money: 0, tokens: 0 }, byKeys: { money: 0, tokens: 0 } });
const copied = ({ all, byKeys }: Used): Used => ({ all: { ...all }, byKeys: { ...byKeys } });

/** The quota while a batch is settled: rollups plus what the batch adds. A request counts whole while a unit is left. */
export class TierQuota implements QuotaPayer {
  readonly #windows = new Map<string, BatchWindow>();
  readonly #counted: { entry: ChargedEntry; counted: Counted | null }[] = [];
  /** Position in the batch up to which everything was counted that the quota pays in any case. */
  #at = 0;

  constructor(
    readonly options: TierQuotaOptions,
    readonly entries: readonly ChargedEntry[],
  ) {}

  async load(tx: Transaction): Promise<void> {
    const { store, tiers } = this.options;
    for (const entry of this.entries) {
      const limit = limitOf(tiers.tier(entry.tier ?? (await tiers.tierOf(entry.userId))));
      this.#counted.push({ entry, counted: limit && this.#count(entry, limit) });
    }
    const keys = Array.from(this.#windows.values(), ({ key }) => key);
    for (const month of await store.lockMonths(tx, keys)) this.#window(month).stored = usedOf(month);
  }

  #count({ userId, project, atMs }: ChargedEntry, limit: Quantity): Counted {
    const month = utcMonth(atMs);
    const whole = this.#window({ userId, month, project: WHOLE_USER });
    return { limit, whole, own: project === null ? null : this.#window({ userId, month, project }) };
  }

  #window(key: MonthKey): BatchWindow {
    const name = nameOf(key);
    const window = this.#windows.get(name) ?? { key, stored: nothingUsed(), now: nothingUsed() };
    this.#windows.set(name, window);
    return window;
  }

  begin(): void {
    this.#at = 0;
    for (const window of this.#windows.values()) window.now = copied(window.stored);
  }

  pays({ requestId }: Settlement): boolean {
    let next = this.#counted[this.#at];
    for (; next && next.entry.requestId !== requestId; next = this.#counted[++this.#at])
      if (!takesPoints(next.entry)) add(next.entry, next.counted);
    if (!next) throw new Error(`the quota was asked for ${requestId}, which does not follow in its batch`);
    if (next.counted && isDrained(next.counted)) return false;
    add(next.entry, next.counted);
    return true;
  }
}

function isDrained({ whole, own, limit }: Counted): boolean {
  const reaches = ({ money, tokens }: Quantity) => money >= limit.money || tokens >= limit.tokens;
  return own ? reaches(own.now.all) || reaches(whole.now.byKeys) : reaches(whole.now.all);
}

function add({ costNanoUsd, promptTokens, completionTokens }: ChargedEntry, counted: Counted | null): void {
  if (!counted) return;
  const { whole, own } = counted;
  for (const used of own ? [whole.now.all, whole.now.byKeys, own.now.all] : [whole.now.all]) {
    used.money += costNanoUsd ?? 0;
    used.tokens += promptTokens + completionTokens;
  }
}
