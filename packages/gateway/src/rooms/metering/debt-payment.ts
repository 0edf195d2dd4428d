import type { Clock } from "../../kernel/clock.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Billing } from "../billing/index.ts";
import type { AccountRef, Ledger } from "../ledger/index.ts";
import { type MonthQuota, NANO_PER_USD, type UsageStore, utcMonth, WHOLE_USER } from "../usage/index.ts";
import { leftForDebt, limitOf } from "./limits.ts";
import { usedOf } from "./windows.ts";

interface DebtPaymentOptions {
  ledger: Pick<Ledger, "transaction" | "payFromQuota">;
  store: UsageStore;
  billing: Billing;
  clock: Clock;
  pointsPerUsd: number;
}

/** Lets this month's quota pay a user's debts on an account, as use of it, under the account's lock. Returns what the month has become. */
export async function payDebtFromQuota(
  { ledger, store, billing, clock, pointsPerUsd }: DebtPaymentOptions,
  { userId, tier }: Payer,
  account: AccountRef,
): Promise<MonthQuota[]> {
  const month = utcMonth(clock.now());
  const limit = limitOf(billing.tier(tier));
  return ledger.transaction(async (tx) => {
    let months: MonthQuota[] = [];
    const points = await ledger.payFromQuota(tx, { account, userId }, async () => {
      months = await store.lockMonths(tx, [{ userId, month, project: WHOLE_USER }]);
      return Math.floor((leftForDebt(limit, usedOf(months[0]!)) * pointsPerUsd) / NANO_PER_USD);
    });
    if (points <= 0) return months;
    const costNanoUsd = Math.ceil((points * NANO_PER_USD) / pointsPerUsd);
    return store.addDebt(tx, { userId, month, costNanoUsd });
  });
}
