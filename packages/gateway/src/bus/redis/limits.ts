import {
  CALM_MS,
  LEFT_PER_AHEAD,
  type LimitAnswer,
  type LimitOrder,
  type LimitServer,
  RECALL,
  RECALL_WAIT_MS,
  SLICE_MS,
} from "../slices/contract.ts";
import type { ScriptServer } from "./scripts.ts";

/** With a higher limit, hits within a part of the window of this size share one time, that of the last of them. */
const TIMES_MAX = 1024;

/**
 * The same sliding log as in one process, in the time of the Redis server, so that clocks of instances do not matter. A
 * key is a hash: fields `1`, `2`, … with "time hits", oldest first, a slice under the time at which it ends; `n` with
 * the number of all hits, `a` and `z` with the first and last field, `s` with the end of the last slice, `~` with the
 * time of the last recall.
 *
 * ARGV for each key: limit, window, hits, ahead, the slice that ends (field and time, or '' and '') and its unused hits, 1
 * if it is final. Returns for each key the hits counted, the milliseconds to wait, the hits given ahead, and the slice.
 */
const HIT = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answer = {}
for k, key in ipairs(KEYS) do
  local at = (k - 1) * 8
  local limit, window, hits = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local ahead, slice, ends = tonumber(ARGV[at + 4]), ARGV[at + 5], tonumber(ARGV[at + 6])
  local unused, isFinal = tonumber(ARGV[at + 7]), ARGV[at + 8] == '1'
  local known = redis.call('HMGET', key, 'n', 'a', 'z', 's', '~')
  local n, first, last = tonumber(known[1] or 0), tonumber(known[2] or 1), tonumber(known[3] or 0)
  local sliceEnd, recalledAt = tonumber(known[4] or 0), tonumber(known[5] or 0)
  -- A clock that was set back must not keep anyone waiting.
  if recalledAt > now then recalledAt = 0 end

  local function run_at(field)
    local text = redis.call('HGET', key, field)
    if not text then return nil end
    local t, count = string.match(text, '(%S+) (%S+)')
    return tonumber(t), tonumber(count)
  end

  if slice ~= '' then
    local t, count = run_at(slice)
    -- Otherwise the key has been forgotten since, and this is another field.
    if t == ends then
      local used = math.max(0, count - unused)
      n = n - (count - used)
      if used == 0 then redis.call('HDEL', key, slice)
      else redis.call('HSET', key, slice, math.min(t, now) .. ' ' .. used) end
    end
  end

  local oldest
  while first <= last do
    local t, count = run_at(first)
    if t and t + window > now and t <= now + ${SLICE_MS} then
      oldest = t
      break
    end
    if t then
      n = n - count
      redis.call('HDEL', key, first)
    end
    first = first + 1
  end

  local counted = math.max(0, math.min(hits, limit - n))
  local wait = 0
  if counted > 0 then
    local t, count
    if first <= last then t, count = run_at(last) end
    local step = limit > ${TIMES_MAX} and window / ${TIMES_MAX} or 1
    if t and t <= now and math.floor(t / step) == math.floor(now / step) then
      redis.call('HSET', key, last, now .. ' ' .. (count + counted))
    else
      last = last + 1
      redis.call('HSET', key, last, now .. ' ' .. counted)
    end
    n = n + counted
  end
  if counted < hits then
    if not isFinal and sliceEnd > now then
      if now - recalledAt > ${CALM_MS} then recalledAt = now end
      if now - recalledAt < ${RECALL_WAIT_MS} then wait = ${RECALL} end
    end
    if wait == 0 then
      -- The limit may have been lowered meanwhile: then more has to pass.
      local passing, field = 0, first
      while field <= last do
        local t, count = run_at(field)
        if t then
          passing = passing + count
          oldest = t
          if n - passing < limit then break end
        end
        field = field + 1
      end
      wait = math.max(1, math.min((oldest or now) + window - now, window))
    end
  end

  local given = 0
  if counted == hits and now - recalledAt > ${CALM_MS} then
    given = math.max(0, math.min(ahead, math.floor((limit - n) / ${LEFT_PER_AHEAD})))
  end
  if given > 0 then
    last = last + 1
    sliceEnd = now + ${SLICE_MS}
    redis.call('HSET', key, last, sliceEnd .. ' ' .. given)
    n = n + given
  end
  if n <= 0 then redis.call('DEL', key)
  else
    redis.call('HSET', key, 'n', n, 'a', first, 'z', last, 's', sliceEnd, '~', recalledAt)
    redis.call('PEXPIRE', key, window + ${SLICE_MS})
  end
  answer[#answer + 1] = counted
  answer[#answer + 1] = wait
  answer[#answer + 1] = given
  answer[#answer + 1] = last
  answer[#answer + 1] = sliceEnd
end
return answer`;

/** The limits of one slot of a Redis server. */
export class RedisLimits implements LimitServer {
  readonly #prefix: string;

  constructor(
    readonly scripts: ScriptServer,
    tag: string,
  ) {
    this.#prefix = `gateway:{${tag}}:limit:`;
  }

  get available(): boolean {
    return this.scripts.available;
  }

  async hit(orders: readonly LimitOrder[]): Promise<readonly LimitAnswer[]> {
    const args: string[] = [];
    for (const { limit, windowMs, hits, ahead, ended, isFinal } of orders) {
      args.push(String(limit), String(windowMs), String(hits), String(ahead));
      const [field = "", ends = ""] = ended?.slice.split(" ") ?? [];
      args.push(field, ends, String(ended?.unused ?? 0), isFinal ? "1" : "0");
    }
    const keys = orders.map(({ key }) => this.#prefix + key);
    const answer = (await this.scripts.run(HIT, keys, args)) as number[];
    return orders.map((_, index) => {
      const [counted, waitMs, ahead, field, ends] = answer.slice(index * 5, index * 5 + 5);
      const slice = `${field} ${ends}`;
      return { counted: counted!, waitMs: waitMs!, ahead: ahead!, slice, sliceMs: SLICE_MS };
    });
  }
}
