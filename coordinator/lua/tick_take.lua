-- tick_take: one instant of an entry for the beat that will send it; or one that a beat took and left unsent.
-- KEYS prefix
-- ARGV name hash instant next token claim send
--   hash: the entry as the caller knows it; instant, next: ms since the epoch, instant 0 = only what was left unsent;
--   token: the beat's; claim: ms in which it must have been sent; send: '0' = too old, pass it over
-- returns {verdict, instant, last, now}; asked again with the same token: the same, until tick_done
--   verdict: taken | passed | stale (another hash is current) | held (another beat sends) | over | early
local P = KEYS[1]
local name, hash, instant, next, token, claim, send = unpack(ARGV)
local record = P .. 'tick:' .. name
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known, last, unsent, owner, till = unpack(redis.call('HMGET', record, 'hash', 'last', 'unsent', 'token', 'till'))

local function answer(verdict, which)
  return {verdict, which, last or '0', string.format('%.0f', now)}
end

local function take(which)
  till = string.format('%.0f', now + claim)
  redis.call('HSET', record, 'unsent', which, 'token', token, 'till', till)
  redis.call('ZADD', P .. 'schedule-unsent', till, name)
  return answer('taken', which)
end

if known ~= hash then return answer('stale', instant) end
if unsent then
  if owner ~= token and tonumber(till) > now then return answer('held', unsent) end
  return take(unsent)
end
if tonumber(instant) <= tonumber(last) then return answer('over', instant) end
if tonumber(instant) > now then return answer('early', instant) end
last = instant
redis.call('HSET', record, 'last', instant, 'next', next)
if send == '0' then return answer('passed', instant) end
return take(instant)
