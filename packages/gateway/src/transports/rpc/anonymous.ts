import { networkOf } from "@model-gateway/wire/server";
import type { RateLimiter } from "../../bus/contract.ts";
import { fail } from "../../kernel/errors.ts";

/** Calls a minute of callers who are not signed in, by address, or by /64 of IPv6. */
export const ANONYMOUS_CALLS_MAX = 1_200;
const WINDOW_MS = 60_000;

/** Counts one call; throws or rejects with the refusal when there were too many. */
export function hitAsStranger(limiter: RateLimiter, ip: string): void | Promise<void> {
  const hit = limiter.hit(`anonymous:${networkOf(ip)}`, ANONYMOUS_CALLS_MAX, WINDOW_MS);
  return typeof hit === "number" ? refuse(hit) : hit.then(refuse);
}

function refuse(waitMs: number): void {
  if (waitMs <= 0) return;
  const retryAfterSeconds = Math.ceil(waitMs / 1000);
  fail("rate_limited", `Too many calls without signing in; try again in ${retryAfterSeconds} s`, {
    retryAfterSeconds,
  });
}
