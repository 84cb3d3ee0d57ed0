-- schedule_follow: stand for the version of a source that is current, or make another current.
-- KEYS prefix
-- ARGV source version base lapse entries triples…
--   base: the version that the caller stood for until now, '' = none; lapse: ms after which nobody stands for one
--   entries: 'none' to stand only, else 'all'; triples: name, hash, next of each: a new or changed one counts from now
-- returns {verdict, now, lasts of the entries, names whose sender is overdue}; verdict: current | behind
--   behind: another version is current, and the caller has not seen that one change; asked again: the same
local P = KEYS[1]
local source, version, base, lapse, entries = unpack(ARGV, 1, 5)
local record, names = P .. 'schedule:' .. source, P .. 'schedule-entries:' .. source
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local current, seen = unpack(redis.call('HMGET', record, 'version', 'seen'))
local free = not current or current == base or now - seen > tonumber(lapse)
if current ~= version and (entries == 'none' or not free) then return {'behind', now, {}, {}} end

local lasts, kept = {}, {}
for i = 6, #ARGV, 3 do
  local name, hash, next = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local tick = P .. 'tick:' .. name
  local known, last = unpack(redis.call('HMGET', tick, 'hash', 'last'))
  if known ~= hash then
    last = now
    redis.call('HSET', tick, 'hash', hash, 'last', now, 'next', next)
  end
  redis.call('HSET', tick, 'source', source)
  redis.call('SADD', names, name)
  kept[name] = true
  lasts[#lasts + 1] = last
end
if entries == 'all' then
  for _, name in ipairs(redis.call('SMEMBERS', names)) do
    if not kept[name] then
      redis.call('SREM', names, name)
      if redis.call('HGET', P .. 'tick:' .. name, 'source') == source then
        redis.call('DEL', P .. 'tick:' .. name)
        redis.call('ZREM', P .. 'schedule-unsent', name)
      end
    end
  end
end
redis.call('HSET', record, 'version', version, 'seen', now)
return {'current', now, lasts, redis.call('ZRANGEBYSCORE', P .. 'schedule-unsent', '-inf', now, 'LIMIT', 0, 64)}
