import { networkOf } from "@model-gateway/wire/server";
import type { Counter } from "../../bus/contract.ts";
import { ServiceError } from "../../kernel/errors.ts";

/** Calls per minute of callers who are not signed in, per address or /64 of IPv6. */
export const ANONYMOUS_CALLS_MAX = 1_200;
const WINDOW_MS = 60_000;

export async function strangerRefusal(counter: Counter, ip: string): Promise<ServiceError | null> {
  const limit = { key: `anonymous:${networkOf(ip)}`, max: ANONYMOUS_CALLS_MAX, windowMs: WINDOW_MS };
  const exceeded = await counter.hit([limit]);
  if (!exceeded) return null;
  const retryAfterSeconds = Math.ceil(exceeded.waitMs / 1000);
  const message = `Too many calls without signing in; try again in ${retryAfterSeconds} s`;
  return new ServiceError("rate_limited", message, { retryAfterSeconds });
}
