-- lane_limit: so many jobs of this lane may run at once; 1 is usual, at 0 nothing starts. What was started goes on.
-- KEYS prefix
-- ARGV key limit why by
-- returns {limit before, rung}
-- include halt
local key, limit, why, by = unpack(ARGV)
local before = limit_of(key)
if limit == '1' then
  redis.call('HDEL', P .. 'limits', key)
  redis.call('ZREM', P .. 'line:' .. key, LIMIT)
else
  mark(key, LIMIT)
  redis.call('HSET', P .. 'limits', key, limit .. cjson.encode({why = why, by = by, at = now}))
end
if tonumber(limit) < before then call_back(key) end
admit(key)
ring_readied(2000)
return {before, rung}
