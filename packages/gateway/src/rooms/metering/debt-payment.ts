import type { Clock } from "../../kernel/clock.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Billing } from "../billing/index.ts";
import type { AccountRef, Ledger } from "../ledger/index.ts";
import { type MonthQuota, NANO_PER_USD, type UsageStore, utcMonth, WHOLE_USER } from "../usage/index.ts";
import { leftForDebt, limitOf } from "./limits.ts";
import { usedOf } from "./windows.ts";

interface DebtPaymentOptions {
  ledger: Pick<Ledger, "transaction" | "lockDebt" | "payFromQuota">;
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
  const debt = { account, userId };
  const month = utcMonth(clock.now());
  const limit = limitOf(billing.tier(tier));
  return ledger.transaction(async (tx) => {
    const owed = await ledger.lockDebt(tx, debt);
    if (owed === 0) return [];
    const before = await store.lockMonths(tx, [{ userId, month, project: WHOLE_USER }]);
    const leftNanoUsd = leftForDebt(limit, usedOf(before[0]!));
    const points = Math.min(owed, Math.floor((leftNanoUsd * pointsPerUsd) / NANO_PER_USD));
    if (points <= 0) return before;
    await ledger.payFromQuota(tx, debt, points);
    const costNanoUsd = Math.ceil((points * NANO_PER_USD) / pointsPerUsd);
    return store.addDebt(tx, { userId, month, costNanoUsd });
  });
}
