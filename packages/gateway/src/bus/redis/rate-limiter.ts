import type { RedisClient } from "bun";
import type { Log } from "../../kernel/log.ts";
import type { RateLimiter } from "../contract.ts";

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

export interface RedisRateLimiterOptions {
  client: RedisClient;
  /** Counts while Redis is away: limits then hold per instance. */
  fallback: RateLimiter;
  log: Log;
}

export class RedisRateLimiter implements RateLimiter {
  #script: Promise<string> | null = null;
  #away = false;
  constructor(readonly options: RedisRateLimiterOptions) {}

  async hit(key: string, limit: number, windowMs: number): Promise<number> {
    if (limit <= 0) return windowMs;
    const { client, fallback } = this.options;
    if (!client.connected) return this.#local(key, limit, windowMs);
    try {
      const waitMs = await this.#run(KEY_PREFIX + key, limit, windowMs);
      if (this.#away) {
        this.#away = false;
        this.options.log.info("limits are shared again");
      }
      return waitMs;
    } catch (error) {
      if (client.connected) this.options.log.warn("a shared limit could not be counted", { error });
      return client.connected ? fallback.hit(key, limit, windowMs) : this.#local(key, limit, windowMs);
    }
  }

  #local(key: string, limit: number, windowMs: number): number | Promise<number> {
    if (!this.#away) {
      this.#away = true;
      this.options.log.warn("Redis is away: limits are counted by each instance alone until it is back");
    }
    return this.options.fallback.hit(key, limit, windowMs);
  }

  async #run(key: string, limit: number, windowMs: number): Promise<number> {
    const { client } = this.options;
    const args = ["1", key, String(limit), String(windowMs)];
    this.#script ??= client.send("SCRIPT", ["LOAD", HIT]);
    try {
      return Number(await client.send("EVALSHA", [await this.#script, ...args]));
    } catch (error) {
      // A restarted or flushed server has forgotten the script.
      if (!String(error).includes("NOSCRIPT")) throw error;
      this.#script = null;
      return Number(await client.send("EVAL", [HIT, ...args]));
    }
  }
}
