import type { Log } from "../../kernel/log.ts";
import type { RateLimiter } from "../contract.ts";
import type { RedisScripts } from "./scripts.ts";

/**
 * The same sliding log as in one process: a list of the last `limit` hits, newest first, in the time of the
 * Redis server, so that clocks of instances do not matter. Returns the milliseconds to wait, 0 when counted.
 */
const HIT = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local oldest = redis.call('LINDEX', KEYS[1], limit - 1)
if oldest then
  local wait = oldest + window - now
  if wait > 0 and wait <= window then return wait end
end
redis.call('LPUSH', KEYS[1], now)
redis.call('LTRIM', KEYS[1], 0, limit - 1)
redis.call('PEXPIRE', KEYS[1], window)
return 0`;

const KEY_PREFIX = "gateway:limit:";

interface RedisRateLimiterOptions {
  scripts: RedisScripts;
  /** Counts while Redis is unreachable: limits then apply per instance. */
  fallback: RateLimiter;
  log: Log;
}

export class RedisRateLimiter implements RateLimiter {
  constructor(readonly options: RedisRateLimiterOptions) {}

  hit(key: string, limit: number, windowMs: number): number | Promise<number> {
    if (limit <= 0) return windowMs;
    const { scripts, fallback, log } = this.options;
    if (!scripts.available) return fallback.hit(key, limit, windowMs);
    return scripts.run(HIT, [KEY_PREFIX + key], [String(limit), String(windowMs)]).then(Number, (error) => {
      if (scripts.available) log.warn("shared rate limit failed; counting locally", { error });
      return fallback.hit(key, limit, windowMs);
    });
  }
}
