-- A worker lives: the messages that it has not acknowledged stay its own for a while.
-- KEYS workers
-- ARGV worker ttl
-- returns the workers that nobody kept in time
local worker, ttl = unpack(ARGV)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ttl, worker)
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)
