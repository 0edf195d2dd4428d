import { HAIR, type Quantity, REFUSED, type Spent } from "../contract.ts";
import {
  CALM_MS,
  type Holding,
  LEFT_PER_AHEAD,
  type PurseAnswer,
  type PurseOrder,
  type PurseServer,
  RECALL,
  RECALL_WAIT_MS,
} from "../slices/contract.ts";
import { ALIVE_MS } from "../slices/purse-group.ts";
import type { ScriptServer } from "./scripts.ts";

/**
 * A purse is a hash: one field per instance with what it holds ("money tokens"), `=` with the newest "version money
 * tokens" that is known to be spent, and `~` with the time of the last recall. Which instances live is a sorted set in
 * the same slot. Fields of dead instances are dropped when seen.
 */
const SHARED = `
local KEPT_MS = 7200000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local me = ARGV[1]
local function put(key, money, tokens)
  if money <= 0 and tokens <= 0 then redis.call('HDEL', key, me)
  else redis.call('HSET', key, me, string.format('%.17g %.17g', money, tokens)) end
  redis.call('PEXPIRE', key, KEPT_MS)
end
`;

/**
 * KEYS: the living instances, then the purses. ARGV: instance, then for each purse base, spent (version, money, tokens,
 * or three times ''), ahead and the number of asks; for each ask version, spent, limit, unitsBeyond (or ''), fixed,
 * perUnit, unitsMin, unitsMax and 1 if it is final. Quantities are money and tokens.
 * Returns for each purse the units of each ask, what is given ahead, and 1 if little is left.
 */
const HOLD = `${SHARED}
local function lives(instance)
  local untilMs = redis.call('ZSCORE', KEYS[1], instance)
  return untilMs and tonumber(untilMs) > now
end
if not lives(me) then return false end
local living = { [me] = true }

-- The same as unitsThatFit in the in-process bus.
local function units_that_fit(left, unitsBeyond, fixed, perUnit, unitsMax)
  if unitsBeyond then
    if left <= 0 then return ${REFUSED} end
    left = math.floor(left + unitsBeyond * perUnit)
  end
  local room = left - fixed + ${HAIR}
  if room < 0 then return ${REFUSED} end
  if perUnit <= 0 then return unitsMax end
  return math.floor(room / perUnit)
end

local at = 1
local function next_number()
  at = at + 1
  return tonumber(ARGV[at])
end

local answer = {}
for k = 2, #KEYS do
  local key = KEYS[k]
  local money, tokens = next_number(), next_number()
  local version, spentMoney, spentTokens = next_number(), next_number(), next_number()
  local isNews = version ~= nil
  local aheadMoney, aheadTokens, asks = next_number(), next_number(), next_number()
  local othersMoney, othersTokens, recalledAt = 0, 0, 0
  if asks > 0 or isNews then
    local fields = redis.call('HGETALL', key)
    for f = 1, #fields, 2 do
      local name, value = fields[f], fields[f + 1]
      if name == '=' then
        local v, m, t = string.match(value, '(%S+) (%S+) (%S+)')
        v = tonumber(v)
        if not version or v >= version then
          version, spentMoney, spentTokens, isNews = v, tonumber(m), tonumber(t), false
        end
      elseif name == '~' then recalledAt = tonumber(value)
      elseif name ~= me then
        if living[name] == nil then living[name] = lives(name) or false end
        if living[name] then
          local m, t = string.match(value, '(%S+) (%S+)')
          othersMoney, othersTokens = othersMoney + tonumber(m), othersTokens + tonumber(t)
        else redis.call('HDEL', key, name) end
      end
    end
  end
  if isNews then
    redis.call('HSET', key, '=', string.format('%.17g %.17g %.17g', version, spentMoney, spentTokens))
  end
  local baseMoney, baseTokens, leftMoney, leftTokens, isShort = money, tokens, 0, 0, false
  -- A clock that was set back must not keep anyone waiting.
  if recalledAt > now then recalledAt = 0 end
  for a = 1, asks do
    local askVersion, askMoney, askTokens = next_number(), next_number(), next_number()
    if version and version > askVersion then askMoney, askTokens = spentMoney, spentTokens end
    leftMoney = next_number() - askMoney - othersMoney
    leftTokens = next_number() - askTokens - othersTokens
    local unitsBeyond = next_number()
    local fixedMoney, fixedTokens, unitMoney, unitTokens = next_number(), next_number(), next_number(), next_number()
    local unitsMin, unitsMax, isFinal = next_number(), next_number(), next_number() == 1
    local units = math.min(unitsMax,
      units_that_fit(leftMoney - money, unitsBeyond, fixedMoney, unitMoney, unitsMax),
      units_that_fit(leftTokens - tokens, unitsBeyond, fixedTokens, unitTokens, unitsMax))
    if units < unitsMax then
      isShort = true
      if not isFinal and (othersMoney > 0 or othersTokens > 0) then
        if now - recalledAt > ${CALM_MS} then
          recalledAt = now
          redis.call('HSET', key, '~', now)
        end
        if now - recalledAt < ${RECALL_WAIT_MS} then units = ${RECALL} end
      end
    end
    if units < unitsMin and units ~= ${RECALL} then units = ${REFUSED} end
    if units >= 0 then
      money = money + math.ceil(fixedMoney + units * unitMoney - ${HAIR})
      tokens = tokens + math.ceil(fixedTokens + units * unitTokens - ${HAIR})
    end
    answer[#answer + 1] = units
  end
  local isTight = 0
  if asks == 0 then aheadMoney, aheadTokens = 0, 0
  else
    local tookMoney, tookTokens = money - baseMoney, tokens - baseTokens
    local mostMoney = math.floor((leftMoney - money) / ${LEFT_PER_AHEAD})
    local mostTokens = math.floor((leftTokens - tokens) / ${LEFT_PER_AHEAD})
    if isShort or mostMoney < tookMoney or mostTokens < tookTokens or now - recalledAt <= ${CALM_MS} then
      aheadMoney, aheadTokens, isTight = 0, 0, 1
    else
      aheadMoney, aheadTokens = math.min(aheadMoney, mostMoney), math.min(aheadTokens, mostTokens)
      money, tokens = money + aheadMoney, tokens + aheadTokens
    end
  end
  put(key, money, tokens)
  answer[#answer + 1] = aheadMoney
  answer[#answer + 1] = aheadTokens
  answer[#answer + 1] = isTight
end
return answer`;

/** Heartbeat of an instance. Returns 0 when the server no longer knows it. */
const BEAT = `${SHARED}
local untilMs = redis.call('ZSCORE', KEYS[1], me)
if not untilMs or tonumber(untilMs) <= now then return 0 end
redis.call('ZADD', KEYS[1], now + ${ALIVE_MS}, me)
redis.call('PEXPIRE', KEYS[1], KEPT_MS)
return 1`;

/**
 * ARGV: instance, the id it had before, then for each purse base and spent (version, money, tokens, or three times '').
 * Returns the name of the server's memory, which is kept among the living for ever: that of the first to enter.
 */
const ENTER = `${SHARED}
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ${ALIVE_MS}, me)
local memory = redis.call('ZRANGEBYSCORE', KEYS[1], '+inf', '+inf')[1]
if not memory then
  memory = 'memory ' .. me
  redis.call('ZADD', KEYS[1], '+inf', memory)
end
redis.call('PEXPIRE', KEYS[1], KEPT_MS)
for i = 2, #KEYS do
  local at = 3 + (i - 2) * 5
  put(KEYS[i], tonumber(ARGV[at]), tonumber(ARGV[at + 1]))
  local version = tonumber(ARGV[at + 2])
  local known = version and redis.call('HGET', KEYS[i], '=')
  if version and (not known or tonumber(string.match(known, '%S+')) < version) then
    redis.call('HSET', KEYS[i], '=', ARGV[at + 2] .. ' ' .. ARGV[at + 3] .. ' ' .. ARGV[at + 4])
  end
end
return memory`;

const LEAVE = `return redis.call('ZREM', KEYS[1], ARGV[1])`;

/** The purses of one slot of a Redis server. */
export class RedisPurses implements PurseServer {
  readonly #alive: string;
  readonly #prefix: string;

  constructor(
    readonly scripts: ScriptServer,
    tag: string,
  ) {
    this.#alive = `gateway:{${tag}}:alive`;
    this.#prefix = `gateway:{${tag}}:hold:`;
  }

  get available(): boolean {
    return this.scripts.available;
  }

  async hold(instance: string, orders: readonly PurseOrder[]): Promise<readonly PurseAnswer[] | null> {
    const args = [instance];
    for (const { base, spent, asks, ahead } of orders) {
      args.push(...numbers(base), ...news(spent), ...numbers(ahead, asks.length));
      for (const ask of asks) {
        args.push(...numbers(ask.spent.version, ask.spent, ask.limit));
        args.push(ask.unitsBeyond === null ? "" : String(ask.unitsBeyond));
        args.push(...numbers(ask.cost.fixed, ask.cost.perUnit, ask.unitsMin, ask.unitsMax));
        args.push(ask.isFinal ? "1" : "0");
      }
    }
    const answer = (await this.scripts.run(HOLD, this.#keys(orders), args)) as number[] | null;
    if (!answer) return null;
    let at = 0;
    return orders.map(({ asks }) => {
      const units = answer.slice(at, at + asks.length);
      at += asks.length;
      const ahead = { money: answer[at++]!, tokens: answer[at++]! };
      return { units, ahead, isTight: answer[at++] === 1 };
    });
  }

  #keys(purses: readonly { name: string }[]): string[] {
    return [this.#alive, ...purses.map(({ name }) => this.#prefix + name)];
  }

  async enter(instance: string, before: string, holdings: readonly Holding[]): Promise<string> {
    const args = [instance, before];
    for (const { base, spent } of holdings) args.push(...numbers(base), ...news(spent));
    return String(await this.scripts.run(ENTER, this.#keys(holdings), args));
  }

  async beat(instance: string): Promise<boolean> {
    return (await this.scripts.run(BEAT, [this.#alive], [instance])) === 1;
  }

  async leave(instance: string): Promise<void> {
    await this.scripts.run(LEAVE, [this.#alive], [instance]);
  }
}

const news = (spent: Spent | null): string[] => (spent ? numbers(spent.version, spent) : ["", "", ""]);
const numbers = (...values: (number | Quantity)[]): string[] =>
  values.flatMap((value) =>
    typeof value === "number" ? [finite(value)] : [finite(value.money), finite(value.tokens)],
  );
/** Lua reads no "Infinity". */
const finite = (value: number): string =>
  String(value === Number.POSITIVE_INFINITY ? Number.MAX_VALUE : value);
