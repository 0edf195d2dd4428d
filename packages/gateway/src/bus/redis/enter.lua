-- Registers an instance. KEYS: the instances. ARGV: the instance. Returns 1 if it is the first, and the milliseconds until
-- the counter can be asked.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields = redis.call('HGETALL', KEYS[1])
local opens
for f = 1, #fields, 2 do
  if fields[f] == 'opens' then opens = tonumber(fields[f + 1])
  elseif tonumber(fields[f + 1]) <= now then redis.call('HDEL', KEYS[1], fields[f]) end
end
local is_new = not opens
if is_new then
  opens = now + OPENS_AFTER_MS
  redis.call('HSET', KEYS[1], 'opens', opens)
end
redis.call('HSET', KEYS[1], ARGV[1], now + ALIVE_MS)
redis.call('PEXPIRE', KEYS[1], KEPT_MS)
return { is_new and 1 or 0, math.max(0, math.min(opens - now, OPENS_AFTER_MS)) }
