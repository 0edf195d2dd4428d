import type { Quantity } from "../../bus/contract.ts";
import type { Transaction } from "../../storage/contract.ts";
import type { Billing } from "../billing/index.ts";
import type { QuotaPayer, Settlement } from "../ledger/index.ts";
import { type MonthKey, type MonthQuota, type UsageStore, utcMonth, WHOLE_USER } from "../usage/index.ts";
import { type JournalEntry, takesPoints } from "./journal/codec.ts";
import { limitOf } from "./limits.ts";
import { type Used, usedOf } from "./windows.ts";

export interface TierQuotaOptions {
  store: UsageStore;
  billing: Pick<Billing, "tier" | "tierOf">;
}

/** An entry with the limits of its tier. */
interface Counted {
  entry: JournalEntry;
  /** Null: none. */
  limit: Quantity | null;
  month: string;
}

const nameOf = ({ userId, month, project }: MonthKey) => `${userId} ${month} ${project}`;

/**
 * The quota as it is while a batch is settled: what the rollups have, read and locked in the transaction, and what
 * the batch adds to them on its way. A request counts whole when at least one unit is left before it.
 */
export class TierQuota implements QuotaPayer {
  #counted: Counted[] = [];
  #months: readonly MonthQuota[] = [];
  readonly #used = new Map<string, Used>();
  /** Position in the batch up to which everything was counted that the quota pays in any case. */
  #at = 0;

  constructor(
    readonly options: TierQuotaOptions,
    readonly entries: readonly JournalEntry[],
  ) {}

  async load(tx: Transaction): Promise<void> {
    const { store, billing } = this.options;
    for (const entry of this.entries) {
      const tier = entry.tier ?? (await billing.tierOf(entry.userId));
      this.#counted.push({ entry, limit: limitOf(billing.tier(tier)), month: utcMonth(entry.atMs) });
    }
    const keys = this.#counted
      .filter(({ limit }) => limit !== null)
      .flatMap(({ entry: { userId, project }, month }) => [
        { userId, month, project: WHOLE_USER },
        ...(project === null ? [] : [{ userId, month, project }]),
      ]);
    this.#months = await store.lockMonths(tx, keys);
  }

  begin(): void {
    this.#at = 0;
    for (const month of this.#months) this.#used.set(nameOf(month), usedOf(month));
  }

  pays({ requestId }: Settlement): boolean {
    let counted = this.#counted[this.#at];
    for (; counted && counted.entry.requestId !== requestId; counted = this.#counted[++this.#at]) {
      if (!takesPoints(counted.entry)) this.#add(counted);
    }
    if (!counted) throw new Error(`the quota was asked for ${requestId}, which does not follow in its batch`);
    if (counted.limit !== null && this.#isDrained(counted, counted.limit)) return false;
    this.#add(counted);
    return true;
  }

  #windowsOf({ entry: { userId, project }, month }: Counted): { whole: Used; own: Used | null } {
    const whole = this.#used.get(nameOf({ userId, month, project: WHOLE_USER }))!;
    return { whole, own: project === null ? null : this.#used.get(nameOf({ userId, month, project }))! };
  }

  #isDrained(counted: Counted, limit: Quantity): boolean {
    const { whole, own } = this.#windowsOf(counted);
    const limiting = own ? [own.all, whole.byKeys] : [whole.all];
    return limiting.some(({ money, tokens }) => money >= limit.money || tokens >= limit.tokens);
  }

  #add(counted: Counted): void {
    if (counted.limit === null) return;
    const { costNanoUsd, promptTokens, completionTokens } = counted.entry;
    const { whole, own } = this.#windowsOf(counted);
    for (const used of own ? [own.all, own.byKeys, whole.all, whole.byKeys] : [whole.all]) {
      used.money += costNanoUsd ?? 0;
      used.tokens += promptTokens + completionTokens;
    }
  }
}
