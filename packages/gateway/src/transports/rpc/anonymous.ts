import { networkOf } from "@model-gateway/wire/server";
import type { RateLimiter } from "../../bus/contract.ts";
import { ServiceError } from "../../kernel/errors.ts";
import { whenKnown } from "../../kernel/when-known.ts";

/** Calls a minute of callers who are not signed in, by address, or by /64 of IPv6. */
export const ANONYMOUS_CALLS_MAX = 1_200;
const WINDOW_MS = 60_000;

type Refusal = ServiceError | null;

/** Counts one call; the refusal when there were too many. */
export function strangerRefusal(limiter: RateLimiter, ip: string): Refusal | Promise<Refusal> {
  return whenKnown(limiter.hit(`anonymous:${networkOf(ip)}`, ANONYMOUS_CALLS_MAX, WINDOW_MS), refusalFor);
}

function refusalFor(waitMs: number): Refusal {
  if (waitMs <= 0) return null;
  const retryAfterSeconds = Math.ceil(waitMs / 1000);
  const message = `Too many calls without signing in; try again in ${retryAfterSeconds} s`;
  return new ServiceError("rate_limited", message, { retryAfterSeconds });
}
