import { fail, ServiceError } from "../../kernel/errors.ts";
import type { KeyLimits, Payer } from "../../kernel/payer.ts";
import type { Balance } from "../ledger/index.ts";
import { NANO_PER_USD, nextMonthMs } from "../usage/index.ts";
import type { KeyLimitKind } from "./key-budgets.ts";

const secondsToNextMonth = (nowMs: number): number =>
  Math.max(1, Math.ceil((nextMonthMs(nowMs) - nowMs) / 1000));

/** Requests in progress end within seconds, and most cost less than they hold. */
const HELD_RETRY_SECONDS = 5;
const secondsUntilFree = (nowMs: number): number => Math.min(HELD_RETRY_SECONDS, secondsToNextMonth(nowMs));
const HELD_WAY_OUT = "try again when they have ended, or ask for fewer tokens (max_tokens)";

const HELD = { points: "your points", pool: "the group's pool", quota: "this month's quota" };

/** There is enough for the request, but requests in progress hold it. */
export function refuseHeld(what: keyof typeof HELD, { everCredited }: Balance, nowMs: number): never {
  fail(
    everCredited ? "payment_required" : "quota_exceeded",
    `Requests in progress hold the rest of ${HELD[what]}; ${HELD_WAY_OUT}`,
    { retryAfterSeconds: secondsUntilFree(nowMs) },
  );
}

/** Nothing covers the request. A user who has ever had points gets a 402. */
export function refuseUncovered({ everCredited }: Balance, nowMs: number): never {
  const words = everCredited
    ? "Neither the points nor what is left of this month's quota cover this request; top up, ask for fewer tokens (max_tokens) or send less, or wait until a new month begins (UTC)"
    : "This month's quota is used up, or too little of it is left for this request; ask for fewer tokens (max_tokens) or send less, ask for a higher tier, or wait until a new month begins (UTC)";
  const kind = everCredited ? "payment_required" : "quota_exceeded";
  fail(kind, words, { retryAfterSeconds: secondsToNextMonth(nowMs) });
}

const UNCHECKED_RETRY_SECONDS = 5;

export const refusalUnchecked = (cause?: unknown): ServiceError =>
  new ServiceError(
    "unavailable",
    "What pays for this request cannot be checked right now; try again shortly",
    { retryAfterSeconds: UNCHECKED_RETRY_SECONDS, cause },
  );

export const refuseUnpriced = (model: string): never =>
  fail(
    "model_unpriced",
    `${model} has no price, and this service serves nothing unpriced to those who pay; an administrator can set its price (Models & backends in the console, or model-gateway prices import)`,
  );

export const refuseTool = (tool: string): never =>
  fail(
    "missing_fields",
    `${tool} is refused: the vendor charges for this tool beside the tokens, and it has no price here; leave it out, or ask an administrator to give it one (\`tool_prices\` of the backend)`,
  );

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

/** A limit of the key is reached: 429 if a new month restores it, 402 if only the owner can. */
export function refuseByKey(
  kind: KeyLimitKind,
  {
    limits,
    isHeld,
    tokens,
    nowMs,
    paceSeconds,
  }: { limits: KeyLimits; isHeld: boolean; tokens: number; nowMs: number; paceSeconds: number },
): never {
  const usd = (nanoUsd: number | null) => `${(nanoUsd ?? 0) / NANO_PER_USD} USD`;
  const byOwner = "have the key's owner raise it (keys.update)";
  const budgets: Partial<Record<KeyLimitKind, [budget: string, raised: string]>> = {
    monthly_budget: [`this key's monthly budget of ${usd(limits.monthlyNanoUsd)}`, `${byOwner}, or `],
    member_budget: [
      `your monthly part of the group's pool, ${usd(limits.memberNanoUsd)}`,
      "have a group admin raise it (group.update), or ",
    ],
    total_budget: [`this key's total budget of ${usd(limits.totalNanoUsd)}`, `or ${byOwner}`],
  };
  const found = budgets[kind];
  if (found) {
    const [budget, raised] = found;
    const isMonthly = kind !== "total_budget";
    const wait = isMonthly ? "wait until a new month begins (UTC)" : "";
    const words = isHeld
      ? `Requests in progress hold the rest of ${budget}; ${HELD_WAY_OUT}`
      : `Too little is left of ${budget}; ask for fewer tokens (max_tokens) or send less, ${raised}${wait}`;
    const toNextMonth = isMonthly ? secondsToNextMonth(nowMs) : undefined;
    const retryAfterSeconds = isHeld ? secondsUntilFree(nowMs) : toNextMonth;
    const rest = { limit: `${kind}_usd` };
    fail(isMonthly ? "quota_exceeded" : "payment_required", words, { retryAfterSeconds, rest });
  }
  const most = limits.tokensPerMinute ?? 0;
  const isNever = tokens > most;
  const words = isNever
    ? `This request counts ${Math.ceil(tokens)} tokens or more, and this key may use ${most} a minute; send less, or have the key's owner raise its limit (keys.update)`
    : `This key may use ${most} tokens a minute, and requests under way count as much as they may take; wait, set max_tokens, or have the key's owner raise its limit (keys.update)`;
  const retryAfterSeconds = isNever ? undefined : paceSeconds;
  fail("rate_limited", words, { retryAfterSeconds, rest: { limit: "tokens_per_minute" } });
}
