-- lane_resume: the lane goes on.
-- KEYS prefix
-- ARGV key why by
-- returns {1 or 0, rung}; 0 = it was not paused
-- include lane
-- include standing
local key, why, by = unpack(ARGV)
local paused = redis.call('HGET', P .. 'paused', key)
redis.call('HDEL', P .. 'paused', key)
local was = redis.call('ZREM', P .. 'line:' .. key, PAUSED)
if was == 1 then
  local front = holder_of(key)
  if front then
    local resumed = cjson.encode({why = why, by = by, at = now})
    redis.call('HSET', P .. 'job:' .. front, 'paused', paused, 'resumed', resumed)
  end
  admit(key)
end
ring_readied(2000)
return {was, rung}
