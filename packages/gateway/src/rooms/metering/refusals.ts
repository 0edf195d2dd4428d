import { fail } from "../../kernel/errors.ts";
import type { Payer } from "../../kernel/payer.ts";
import type { Balance } from "../ledger/index.ts";
import { nextMonthMs } from "../usage/index.ts";

const secondsToNextMonth = (nowMs: number): number =>
  Math.max(1, Math.ceil((nextMonthMs(nowMs) - nowMs) / 1000));

/** Nothing covers the request. A user who has ever had points gets a 402. */
export function refuseUncovered({ everCredited }: Balance, nowMs: number): never {
  const retryAfterSeconds = secondsToNextMonth(nowMs);
  if (everCredited) {
    fail(
      "payment_required",
      "Neither the points nor what is left of this month's quota cover this request; top up, ask for fewer tokens (max_tokens) or send less, or wait until a new month begins (UTC)",
      { retryAfterSeconds },
    );
  }
  fail(
    "quota_exceeded",
    "This month's quota is used up, or too little of it is left for this request; ask for fewer tokens (max_tokens) or send less, ask for a higher tier, or wait until a new month begins (UTC)",
    { retryAfterSeconds },
  );
}

/** Nothing is admitted while a debt stands. */
export function refuseIndebted({ groupId }: Payer, owed: number, nowMs: number): never {
  const where = groupId === null ? "" : " on the group's pool";
  const topup = groupId === null ? "points in your wallet" : "a top-up of the pool";
  fail(
    "payment_required",
    `You owe ${owed} points${where} for requests that neither points nor the quota covered; ${topup} or the quota of the next month (UTC) pays this first`,
    { retryAfterSeconds: secondsToNextMonth(nowMs), data: { debt_points: owed } },
  );
}
