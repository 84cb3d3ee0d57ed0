-- lane_pause: nothing more of this lane starts; what was started goes on.
-- KEYS prefix
-- ARGV key why by
-- returns 1, or 0 when it was paused already
-- include lane
local key, why, by = unpack(ARGV)
local line = P .. 'line:' .. key
local id = redis.call('ZRANGE', line, 0, 0)[1]
redis.call('HSET', P .. 'paused', key, cjson.encode({why = why, by = by, at = now}))
if redis.call('ZADD', line, '-inf', PAUSED) == 0 then return 0 end
local job = id and redis.call('HMGET', P .. 'job:' .. id, 'state', 'class', 'taken')
if job and job[1] == 'ready' and not job[3] then
  redis.call('LREM', P .. 'ready:' .. job[2], 1, id)
  redis.call('HSET', P .. 'job:' .. id, 'state', 'waiting')
end
return 1
