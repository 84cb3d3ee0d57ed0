-- hand_keep: what a worker has in hand stays its own for a while; whose hands are past their time; on the broker's Redis.
-- KEYS hands
-- ARGV hand ttl
-- returns the hands that nobody kept in time
local hand, ttl = unpack(ARGV)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ttl, hand)
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)
