import type { RateLimiter } from "../contract.ts";
import type { WorkerLink } from "./link.ts";

/** Limits counted by the supervisor; by this worker alone while that is unreachable. */
export class WorkerRateLimiter implements RateLimiter {
  constructor(readonly options: { link: WorkerLink; fallback: RateLimiter }) {}

  hit(key: string, limit: number, windowMs: number): number | Promise<number> {
    if (limit <= 0) return windowMs;
    const { link, fallback } = this.options;
    if (!link.connected) return fallback.hit(key, limit, windowMs);
    return link
      .ask((id) => ["hit", id, key, limit, windowMs])
      .catch(() => fallback.hit(key, limit, windowMs));
  }
}
