-- lane_pause: nothing more of this lane starts; what was started goes on.
-- KEYS prefix
-- ARGV key why by
-- returns 1, or 0 when it was paused already
-- include halt
local key, why, by = unpack(ARGV)
redis.call('HSET', P .. 'paused', key, cjson.encode({why = why, by = by, at = now}))
if redis.call('ZSCORE', P .. 'line:' .. key, PAUSED) then return 0 end
mark(key, PAUSED)
call_back(key)
ring_readied(2000)
return 1
