-- A message that a dead worker has not acknowledged goes back to its queue, unless that was done before.
-- KEYS tags unacked index lists…
--   tags: set of what the worker has not acknowledged; unacked, index: kombu's hash and sorted set of all of that;
--   lists: where it goes, none = it is dropped
-- ARGV tag kept message
--   kept: as it stands in unacked
-- returns 1 when this call did it, else 0
local tag, kept, message = unpack(ARGV)
if redis.call('SREM', KEYS[1], tag) == 0 or redis.call('HGET', KEYS[2], tag) ~= kept then return 0 end
redis.call('HDEL', KEYS[2], tag)
redis.call('ZREM', KEYS[3], tag)
for i = 4, #KEYS do redis.call('RPUSH', KEYS[i], message) end
return 1
