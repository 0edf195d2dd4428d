-- Decides the asks of one instance atomically. KEYS: the instances. ARGV: the asking instance, the asks as JSON, and the
-- prefix of keys. Returns the answers and the number of instances, or nil if the instance is not known. Each key is read
-- once and written once. Names in capitals are defined in counter.ts; all times are the server's.
--
-- A purse is a hash: one field per instance with its holds ("money tokens"), and "=" with the newest known spending
-- ("version money tokens"). Fields of dead instances are removed when read.
--
-- A limit is the same sliding log as in one process, as a hash: fields 1, 2, ... with "time hits", oldest first, and "m",
-- which suffices for most hits: all hits, first and last field, oldest and newest time, hits of the newest, and when the
-- key expires.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local instances, me, PREFIX = KEYS[1], ARGV[1], ARGV[3]
local untilMs = tonumber(redis.call('HGET', instances, me) or 0)
if untilMs <= now then return false end
if untilMs < now + ALIVE_MS - 1000 then
  redis.call('HSET', instances, me, now + ALIVE_MS)
  redis.call('PEXPIRE', instances, KEPT_MS)
end

local living = { [me] = true }
local function lives(instance)
  if living[instance] == nil then
    living[instance] = tonumber(redis.call('HGET', instances, instance) or 0) > now
  end
  return living[instance]
end

local purses = {}
local function purse_of(name)
  local purse = purses[name]
  if purse then return purse end
  purse = { key = PREFIX .. 'hold:' .. name, money = 0, tokens = 0, others_money = 0, others_tokens = 0 }
  local fields = redis.call('HGETALL', purse.key)
  for f = 1, #fields, 2 do
    local field, value = fields[f], fields[f + 1]
    if field == '=' then
      local version, money, tokens = string.match(value, '(%S+) (%S+) (%S+)')
      purse.spent = { version = tonumber(version), money = tonumber(money), tokens = tonumber(tokens) }
    elseif lives(field) then
      local money, tokens = string.match(value, '(%S+) (%S+)')
      if field == me then purse.money, purse.tokens, purse.was_held = tonumber(money), tonumber(tokens), true
      else
        purse.others_money = purse.others_money + tonumber(money)
        purse.others_tokens = purse.others_tokens + tonumber(tokens)
      end
    else redis.call('HDEL', purse.key, field) end
  end
  purses[name] = purse
  return purse
end

local function hold(name, money, tokens)
  local purse = purse_of(name)
  purse.money, purse.tokens, purse.is_changed = purse.money + money, purse.tokens + tokens, true
  if purse.money <= 0 and purse.tokens <= 0 then purse.money, purse.tokens = 0, 0 end
end

-- The same as unitsThatFit of the counter in memory.
local function units_that_fit(left, fixed, per_unit, beyond)
  if beyond ~= cjson.null then
    if left <= 0 then return REFUSED end
    left = math.floor(left + beyond * per_unit)
  end
  local room = left - fixed + HAIR
  if room < 0 then return REFUSED end
  if per_unit <= 0 then return math.huge end
  return math.floor(room / per_unit)
end

local function amount(fixed, per_unit, units)
  return math.ceil(fixed + units * per_unit - HAIR)
end

local function grant(asking)
  local units = asking.unitsMax
  for _, asked in ipairs(asking.purses) do
    local purse, spent, cost = purse_of(asked.name), asked.spent, asked.cost or asking
    if purse.spent and purse.spent.version > spent.version then spent = purse.spent end
    units = math.min(units,
      units_that_fit(asked.limit.money - spent.money - purse.money - purse.others_money,
        cost.fixed.money, cost.perUnit.money, asked.unitsBeyond),
      units_that_fit(asked.limit.tokens - spent.tokens - purse.tokens - purse.others_tokens,
        cost.fixed.tokens, cost.perUnit.tokens, asked.unitsBeyond))
    if units < asking.unitsMin then return { REFUSED } end
  end
  local function hold_on(name, cost)
    hold(name, amount(cost.fixed.money, cost.perUnit.money, units),
      amount(cost.fixed.tokens, cost.perUnit.tokens, units))
  end
  for _, asked in ipairs(asking.purses) do hold_on(asked.name, asked.cost or asking) end
  for _, name in ipairs(asking.alsoOn) do hold_on(name, asking) end
  return { units }
end

local function change(changes)
  for _, each in ipairs(changes) do
    hold(each.name, each.amount.money, each.amount.tokens)
    local purse, spent = purse_of(each.name), each.spent
    if spent and (not purse.spent or spent.version > purse.spent.version) then
      purse.spent, purse.has_news = spent, true
    end
  end
  return {}
end

local windows = {}
local function entry(window, field)
  local at, hits = string.match(redis.call('HGET', window.key, field), '(%S+) (%S+)')
  return tonumber(at), tonumber(hits)
end
local function window_of(limit)
  local window = windows[limit.key]
  if window then return window end
  window = { key = PREFIX .. 'rate:' .. limit.key, ms = limit.windowMs, added = 0 }
  local known = redis.call('HGET', window.key, 'm') or '0 1 0 0 0 0 0'
  local hits, first, last, oldest, newest, newest_hits, expires =
    string.match(known, '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
  window.hits, window.first, window.last = tonumber(hits), tonumber(first), tonumber(last)
  window.oldest, window.newest, window.newest_hits = tonumber(oldest), tonumber(newest), tonumber(newest_hits)
  window.expires = tonumber(expires)
  -- Times in the future come from a clock that was set back; they must not block anyone.
  while window.first <= window.last and (window.oldest + window.ms <= now or window.oldest > now) do
    local _, past = entry(window, window.first)
    redis.call('HDEL', window.key, window.first)
    window.hits, window.first, window.is_changed = window.hits - past, window.first + 1, true
    if window.first <= window.last then window.oldest = entry(window, window.first) end
  end
  if window.first > window.last then window.oldest = now end
  windows[limit.key] = window
  return window
end

local function hit(limits)
  for i, limit in ipairs(limits) do
    if limit.max <= 0 then return { i - 1, limit.windowMs } end
    local window = window_of(limit)
    if window.hits >= limit.max then
      return { i - 1, math.max(1, math.min(window.oldest + window.ms - now, window.ms)) }
    end
    window.step = limit.max > TIMES_MAX and window.ms / TIMES_MAX or 1
    window.hits, window.added, window.is_changed = window.hits + 1, window.added + 1, true
  end
  return {}
end

local answers = {}
for i, ask in ipairs(cjson.decode(ARGV[2])) do
  answers[i] = ask.grant and grant(ask.grant) or ask.hit and hit(ask.hit) or change(ask.change)
end

for _, purse in pairs(purses) do
  if purse.is_changed then
    if purse.money > 0 or purse.tokens > 0 then
      redis.call('HSET', purse.key, me, string.format('%.17g %.17g', purse.money, purse.tokens))
    elseif purse.was_held then redis.call('HDEL', purse.key, me) end
    if purse.has_news then
      local spent = purse.spent
      redis.call('HSET', purse.key, '=', string.format('%.17g %.17g %.17g', spent.version, spent.money, spent.tokens))
    end
    redis.call('PEXPIRE', purse.key, KEPT_MS)
  end
end
for _, window in pairs(windows) do
  if window.is_changed and window.hits <= 0 then redis.call('DEL', window.key)
  elseif window.is_changed then
    local key, step = window.key, window.step
    if window.added > 0 then
      local is_shared = window.first <= window.last and math.floor(window.newest / step) == math.floor(now / step)
      if not is_shared then window.last, window.newest_hits = window.last + 1, 0 end
      window.newest, window.newest_hits = now, window.newest_hits + window.added
      -- An only entry is the oldest, too; its time is that of its last hit.
      if window.first == window.last then window.oldest = now end
    end
    local renews = window.expires < now + window.ms
    if renews then window.expires = now + 2 * window.ms end
    local known = string.format('%d %d %d %.17g %.17g %d %.17g', window.hits, window.first, window.last,
      window.oldest, window.newest, window.newest_hits, window.expires)
    redis.call('HSET', key, 'm', known, window.last, string.format('%.17g %d', window.newest, window.newest_hits))
    if renews then redis.call('PEXPIRE', key, 2 * window.ms) end
  end
end
-- One field, `opens`, is not an instance.
return { answers, redis.call('HLEN', instances) - 1 }
